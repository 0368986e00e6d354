"""Training tokens per second in plain AdamW steps, like for like, against nanoGPT's own loop.

    python benchmarks/steps.py --nanogpt CHECKOUT [--device cuda]

The shape of nanoGPT's CPU quick start: 4 layers, 4 heads, width 128, context 64, batch 12, of 65
tokens. Both sides take batches from memory, clip the gradients and step; each in a process of its
own, as its users start it, in turn. Ours is told for GPT-2's block, which is nanoGPT's, and for the
default one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

GPT2 = {"norm": "layernorm", "position": "learned", "mlp": "gelu", "qk_norm": False}
SIDES: dict[str, dict[str, Any] | None] = {
    "nanoGPT": None,
    "glassgpt, GPT-2's block": GPT2,
    "glassgpt, default block": {},
}
LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 4, 4, 128, 64, 65
BATCH, STEPS = 12, 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(time_steps(arguments.side, arguments.nanogpt, arguments.device))
        return
    times: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(arguments.rounds):
        for name, found in times.items():
            child = [sys.executable, __file__, *sys.argv[1:], "--side", name]
            found.append(float(subprocess.check_output(child, text=True).split()[-1]))
    rates = {name: BATCH * CONTEXT / statistics.median(found) for name, found in times.items()}
    for name, rate in rates.items():
        print(f"{name}: {rate:,.0f} tokens/s, {rate / rates['nanoGPT']:.2f} x")


def time_steps(side: str, checkout: Path, device: str) -> float:
    """Seconds of one step of a warm model: the mean of STEPS."""
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, 10**6).astype(np.uint16)
    block = SIDES[side]
    step = nanogpt(checkout, tokens, device) if block is None else glassgpt(block, tokens, device)
    for _ in range(20):
        step()
    began = time.perf_counter()
    for _ in range(STEPS):
        loss = step()
    loss.item()  # on a GPU: wait for the last step
    return (time.perf_counter() - began) / STEPS


def glassgpt(block: dict[str, Any], tokens: np.ndarray, device: str) -> Callable[[], Any]:
    import openmp  # noqa: F401  # isort: skip
    import torch

    from data.batches import Batches
    from model import GPT, ModelConfig
    from training.device import keep_freed_memory
    from training.evaluation import cross_entropy
    from training.optimizer import Optimizer, OptimizerConfig

    keep_freed_memory()
    batches = Batches(tokens, BATCH, CONTEXT, seed=0)
    model = GPT(ModelConfig(LAYERS, HEADS, WIDTH, CONTEXT, **block), VOCABULARY).to(device)
    optimizer = Optimizer(model, OptimizerConfig("adamw", 1e-3, 0.1, 0.9, 0.99, 0, 0.0))
    numbers = iter(range(10**9))

    def step() -> Any:
        x, y = (each.to(device) for each in batches(next(numbers)))
        loss = cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(1.0)
        return loss

    return step


def nanogpt(checkout: Path, tokens: np.ndarray, device: str) -> Callable[[], Any]:
    import torch

    from benchmarks.peer import load_nanogpt

    module = load_nanogpt(checkout)
    config = module.GPTConfig(CONTEXT, VOCABULARY, LAYERS, HEADS, WIDTH, dropout=0.0, bias=False)
    model = module.GPT(config).to(device)
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), device)

    def gather(starts: Any, shift: int) -> Any:
        rows = [tokens[start + shift : start + shift + CONTEXT] for start in starts]
        return torch.stack([torch.from_numpy(row.astype(np.int64)) for row in rows]).to(device)

    def step() -> Any:
        starts = torch.randint(len(tokens) - CONTEXT, (BATCH,))
        _, loss = model(gather(starts, 0), gather(starts, 1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


if __name__ == "__main__":
    main()
