"""Compare the circuit of a run with the hooks of TransformerLens, for twenty subsets of parts.

    python convert.py source=RUN to=FOLDER
    VENV/bin/python benchmarks/circuit_transformer_lens.py RUN FOLDER

VENV: an environment that has transformer-lens 4.3.0 beside the packages of this project. Prints the
largest difference of a probability.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from inference.opening import open_run
from model import circuit
from model.hooks import Part

TEXT = "Once there was a jolly deer named Ben. Ben had a blue bed."
N_SUBSETS = 20


@torch.no_grad()
def main(run: str, folder: str) -> None:
    opened = open_run(run, "last")
    library = import_module("transformer_lens.model_bridge")
    bridge = library.TransformerBridge.boot_transformers(folder)
    bridge.eval()
    tokens, means = opened.tokens(TEXT), opened.means()
    found = circuit(opened.model, tokens, means)
    differences = []
    for subset in random.Random(5).sample(range(len(found.values)), N_SUBSETS):
        off = [part for i, part in enumerate(found.parts) if not subset >> i & 1]
        hooks = [replacing(part, means[part]) for part in off]
        logits = bridge.run_with_hooks(tokens[None], fwd_hooks=hooks)
        theirs = logits[0, -1].float().softmax(-1)[found.target]
        differences.append(float(abs(theirs - found.values[subset])))
    print(
        f"{N_SUBSETS} of {len(found.values)} subsets: the largest difference is "
        f"{max(differences):.1e}"
    )


def replacing(part: Part, mean: Tensor) -> tuple[str, Callable[..., Tensor]]:
    """The hook that puts a constant in the place of what a part computes, and its point."""
    if isinstance(part, str):
        block = part.removeprefix("mlp ")
        return f"blocks.{block}.mlp.hook_out", lambda value, hook: mean.expand_as(value)
    layer, head = part

    def replace(value: Tensor, hook: object) -> Tensor:
        heads = value.clone().reshape(*value.shape[:2], -1, len(mean))
        heads[:, :, head] = mean
        return heads.view_as(value)

    return f"blocks.{layer}.attn.hook_z", replace


if __name__ == "__main__":
    main(*sys.argv[1:])
