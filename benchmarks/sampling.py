"""Tokens per second of sampling against nanoGPT's `generate`, from one token to a full context.

    python benchmarks/sampling.py --nanogpt CHECKOUT [--device cuda]

Both sides have the same shape (nanoGPT's 10.65 M character model) and random weights, and take
turns. nanoGPT computes the whole window anew for every token.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.peer import load_nanogpt
from model import GPT, ModelConfig, generate

N_LAYERS, N_HEADS, D_MODEL, CONTEXT, VOCABULARY = 6, 6, 384, 256, 65


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    torch.manual_seed(0)
    peer = nanogpt(arguments.nanogpt).to(device).eval()
    ours = GPT(
        ModelConfig(
            n_layers=N_LAYERS,
            n_heads=N_HEADS,
            d_model=D_MODEL,
            context_length=CONTEXT,
            norm="layernorm",
            position="learned",
            mlp="gelu",
            qk_norm=False,
            bias=False,
            tied_embeddings=True,
        ),
        VOCABULARY,
    ).to(device)
    new = CONTEXT - 1
    for batch in (1, 16):
        prompt = torch.zeros(batch, 1, dtype=torch.long, device=device)
        sides: dict[str, Callable[[], object]] = {
            "nanoGPT": partial(peer.generate, prompt, new, temperature=0.8),
            "glassgpt": partial(write, ours, prompt, new),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(arguments.rounds):
            for name, work in sides.items():
                times[name].append(seconds(work, device))
        tokens = batch * new
        rates = {name: tokens / statistics.median(each) for name, each in times.items()}
        told = ", ".join(
            f"{name} {rates[name]:,.0f} tokens/s "
            f"({tokens / max(each):,.0f} to {tokens / min(each):,.0f})"
            for name, each in times.items()
        )
        print(f"{batch} at once: {told}, {rates['glassgpt'] / rates['nanoGPT']:.1f} x", flush=True)


def write(model: GPT, prompt: torch.Tensor, new: int) -> None:
    for _ in generate(model, prompt, new, temperature=0.8):
        pass


def nanogpt(folder: Path) -> Any:
    module = load_nanogpt(folder)
    return module.GPT(
        module.GPTConfig(
            block_size=CONTEXT,
            vocab_size=VOCABULARY,
            n_layer=N_LAYERS,
            n_head=N_HEADS,
            n_embd=D_MODEL,
            dropout=0.0,
            bias=False,
        )
    )


def seconds(work: Callable[[], object], device: torch.device) -> float:
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
