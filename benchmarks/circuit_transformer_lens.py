"""Compare the circuit of a run with the hooks of TransformerLens, for twenty subsets of parts.

    python convert.py source=RUN to=FOLDER
    python benchmarks/circuit_transformer_lens.py RUN FOLDER --python VENV/bin/python

VENV: an environment with transformer-lens 4.3.0, whose packages the project does without.
Prints the largest difference of a probability.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from inference.opening import open_run
from model import circuit

TEXT = "Once there was a jolly deer named Ben. Ben had a blue bed."
N_SUBSETS = 20
# Reads what is asked as JSON, and prints the probability of the target with each subset on.
PEER = """
import json, sys
import torch
from transformer_lens.model_bridge import TransformerBridge

asked = json.load(sys.stdin)
bridge = TransformerBridge.boot_transformers(asked["folder"])
bridge.eval()


def hook(name, mean):
    mean = torch.tensor(mean)
    if name.endswith("MLP"):
        return f"blocks.{name[1:-4]}.mlp.hook_out", lambda value, hook: mean.expand_as(value)
    layer, head = map(int, name[1:].split("H"))

    def replaced(value, hook):
        heads = value.clone().reshape(*value.shape[:2], -1, len(mean))
        heads[:, :, head] = mean
        return heads.view_as(value)

    return f"blocks.{layer}.attn.hook_z", replaced


tokens = torch.tensor([asked["tokens"]])
for off in asked["off"]:
    hooks = [hook(name, asked["means"][name]) for name in off]
    with torch.no_grad():
        logits = bridge.run_with_hooks(tokens, fwd_hooks=hooks)
    print("probability", logits[0, -1].float().softmax(-1)[asked["target"]].item())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("folder", help="the run as a folder of Hugging Face")
    parser.add_argument("--python", required=True, help="of the environment of TransformerLens")
    given = parser.parse_args()
    opened = open_run(given.run, "last")
    tokens, means = opened.tokens(TEXT), opened.means()
    found = circuit(opened.model, tokens, means)
    subsets = random.Random(5).sample(range(len(found.values)), N_SUBSETS)
    off = [
        [name for i, name in enumerate(found.names) if not subset >> i & 1] for subset in subsets
    ]
    asked = {
        "folder": str(Path(given.folder).resolve()),
        "tokens": tokens.tolist(),
        "target": found.target,
        "off": off,
        "means": {
            name: means[part].tolist() for name, part in zip(found.names, found.parts, strict=True)
        },
    }
    done = subprocess.run(
        [given.python, "-c", PEER],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("probability")]
    theirs = [float(value) for _, value in lines]
    ours = [found.values[subset].item() for subset in subsets]
    difference = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    print(f"{N_SUBSETS} of {len(found.values)} subsets: the largest difference is {difference:.1e}")


if __name__ == "__main__":
    main()
