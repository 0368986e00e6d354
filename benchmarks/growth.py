"""How step time and peak memory grow with context length and width.

    python benchmarks/growth.py

Prints three tables with the slopes of their log-log lines, and the share that a step reaches of the
machine's measured matrix-multiplication peak, in float32 and under bfloat16 autocast. In the first
two, which vary the context and the width, every step has the same number of tokens: memory that is
linear in the context has a slope of 0. In the third, the batch is fixed, and linear memory has a
slope of at most 1. Every point runs in its own process, which measures the peak after the steps.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
import timeit
from pathlib import Path
from statistics import linear_regression, median

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Shape, configure, in_child, start

CONTEXTS = (64, 128, 256, 512, 1024, 2048)
WIDTHS = (64, 128, 256, 512)
TOKENS = 4096
VOCABULARY = 2048
STEPS = 7
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}  # of matrix products


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print_table("context length", {n: (n, 128, TOKENS // n) for n in CONTEXTS})
    print_table("width", {width: (256, width, TOKENS // 256) for width in WIDTHS})
    print("Two sequences, at every context length:\n")
    print_table("context length", {n: (n, 128, 2) for n in CONTEXTS})


def print_table(axis: str, points: dict[int, tuple[int, int, int]]) -> None:
    """Measure points, given by their place on the axis: (context length, width, batch size)."""
    print(
        f"| {axis} | ms per step | tokens/s | peak memory above start, MB | share of fp32 peak "
        "| ms per step, bf16 | share of bf16 peak |"
    )
    print("|---|---|---|---|---|---|---|")
    rows = []
    for place, point in points.items():
        fp32, bf16 = (in_child(__file__, *point, precision) for precision in DTYPES)
        rows.append((fp32, bf16))
        print(
            f"| {place} | {fp32['ms']:.0f} | {fp32['rate']:,.0f} | {fp32['memory']:.0f} "
            f"| {fp32['share']:.0%} | {bf16['ms']:.0f} | {bf16['share']:.0%} |",
            flush=True,
        )
    places = [math.log(place) for place in points]
    time_slope, memory_slope = (
        linear_regression(places, [math.log(fp32[what]) for fp32, _ in rows]).slope
        for what in ("ms", "memory")
    )
    fp32_peak, bf16_peak = (median(row[i]["peak"] for row in rows) for i in (0, 1))
    print(f"\nslope: time {time_slope:.2f}, memory {memory_slope:.2f}")
    print(f"matmul peak, median: fp32 {fp32_peak:,.0f} GFLOP/s, bf16 {bf16_peak:,.0f} GFLOP/s\n")


def child(context: int, width: int, batch: int, precision: str) -> dict[str, float]:
    from model import GPT, cross_entropy
    from training.device import autocast, keep_freed_memory
    from training.optimizer import Optimizer

    shape = Shape(context, VOCABULARY, n_layers=2, n_heads=4, d_model=width)
    config = configure(shape, "model=nano", "optimizer=adamw", "optimizer.lr=1e-3")
    model = GPT(config.model, VOCABULARY)
    optimizer = Optimizer(model, config.optimizer, STEPS)
    keep_freed_memory()
    tokens = torch.randint(VOCABULARY, (batch, context + 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for step in range(1, STEPS + 1):
        began = time.perf_counter()
        with autocast(torch.device("cpu"), precision):
            logits = model(tokens[:, :-1])
        cross_entropy(logits, tokens[:, 1:]).backward()
        optimizer.step(step, torch.tensor(True))
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    rate = batch * context / median(times[2:])
    peak = peak_flops(DTYPES[precision])
    return {
        "ms": median(times[2:]) * 1000,
        "rate": rate,
        "memory": memory / 1e6,
        "share": rate * model.flops_per_token / peak,
        "peak": peak / 1e9,
    }


def peak_flops(dtype: torch.dtype, size: int = 2048) -> float:
    """FLOP/s of the fastest of several products of two square matrices."""
    a, b = torch.randn(2, size, size).to(dtype)
    return 2 * size**3 / min(timeit.repeat(lambda: a @ b, number=1, repeat=8))


if __name__ == "__main__":
    start(main, child)
