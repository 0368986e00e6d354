"""Tokens per second of sampling, compared with nanoGPT's `generate`, up to a full context.

    python benchmarks/sampling.py --nanogpt CHECKOUT [--device cuda]

Both sides start from one token, have the same shape (nanoGPT's character model of 10.65 M
parameters) and random weights, and are measured in turn. nanoGPT recomputes the whole window for
every token.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import GPT2_BLOCK, Shape, configure, in_turn, make_parser, nanogpt, spread
from inference import generate
from model import GPT

SHAPE = Shape(context_length=256, vocab_size=65, n_layers=6, n_heads=6, d_model=384)


def main() -> None:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    peer = nanogpt(arguments.nanogpt, SHAPE).to(arguments.device).eval()
    ours = GPT(configure(SHAPE, *GPT2_BLOCK).model, SHAPE.vocab_size).to(arguments.device)
    for batch in (1, 16):
        prompt = torch.zeros(batch, 1, dtype=torch.long, device=arguments.device)
        compare(peer, ours, prompt, arguments.rounds)


def compare(peer: Any, ours: GPT, prompt: Tensor, rounds: int) -> None:
    n_new = SHAPE.context_length - 1

    def rate(side: str, number: int) -> float:
        began = time.perf_counter()
        if side == "nanoGPT":
            peer.generate(prompt, n_new, temperature=0.8)
        else:
            for _ in generate(ours, prompt, n_new, temperature=0.8):
                pass
        if prompt.is_cuda:
            torch.cuda.synchronize()
        return len(prompt) * n_new / (time.perf_counter() - began)

    rates = in_turn(("nanoGPT", "glassgpt"), range(rounds), rate)
    results = [f"{side} {spread(found, ',.0f', ' tokens/s')}" for side, found in rates.items()]
    ratio = median(rates["glassgpt"]) / median(rates["nanoGPT"])
    print(f"{len(prompt)} at once: {', '.join(results)}, {ratio:.1f} x", flush=True)


if __name__ == "__main__":
    main()
