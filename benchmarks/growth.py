"""How step time and peak memory grow with context length and width.

    python benchmarks/growth.py

Prints one table for each axis, the slopes of its log-log lines, and the share of the machine's
measured matrix-multiplication peak that a step reaches, in float32 and under bfloat16 autocast. The
batch shrinks as the context grows, so that a step always holds the same number of tokens: memory
that is linear in the context shows as a slope of 0; a third table holds the batch, and there it
shows as a slope of 1 at most. Every point is a process of its own, which measures the peak as well,
after its steps.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

CONTEXTS = (64, 128, 256, 512, 1024, 2048)
WIDTHS = (64, 128, 256, 512)
TOKENS = 4096
VOCABULARY = 2048
STEPS = 7
PEAKS = {"fp32": torch.float32, "bf16": torch.bfloat16}  # of matrix products


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    table("context length", 0, [(context, 128, TOKENS // context) for context in CONTEXTS])
    table("width", 1, [(256, width, TOKENS // 256) for width in WIDTHS])
    print("Two sequences, whatever the context:\n")
    table("context length", 0, [(context, 128, 2) for context in CONTEXTS])


def table(axis: str, column: int, points: list[tuple[int, int, int]]) -> None:
    print(
        f"| {axis} | ms a step | tokens/s | peak memory above start, MB | share of fp32 peak "
        "| ms a step, bf16 | share of bf16 peak |"
    )
    print("|---|---|---|---|---|---|---|")
    found, peaks = [], []
    for point in points:
        fp32, bf16 = (measure(point, precision) for precision in PEAKS)
        found.append(fp32)
        peaks.append((fp32["peak"], bf16["peak"]))
        print(
            f"| {point[column]} | {fp32['seconds'] * 1000:.0f} "
            f"| {fp32['tokens'] / fp32['seconds']:,.0f} | {fp32['memory'] / 1e6:.0f} "
            f"| {share(fp32):.0%} | {bf16['seconds'] * 1000:.0f} | {share(bf16):.0%} |",
            flush=True,
        )
    xs = np.log([point[column] for point in points])
    slopes = {
        name: np.polyfit(xs, np.log([each[name] for each in found]), 1)[0]
        for name in ("seconds", "memory")
    }
    told = ", ".join(
        f"{precision} {statistics.median(values) / 1e9:,.0f} GFLOP/s"
        for precision, values in zip(PEAKS, zip(*peaks, strict=True), strict=True)
    )
    print(f"\nslope: time {slopes['seconds']:.2f}, memory {slopes['memory']:.2f}")
    print(f"matmul peak, median: {told}\n", flush=True)


def share(measured: dict[str, float]) -> float:
    return measured["flops"] / measured["seconds"] / measured["peak"]


def measure(point: tuple[int, int, int], precision: str) -> dict[str, float]:
    child = [sys.executable, __file__, "--child", *map(str, point), precision]
    return json.loads(subprocess.check_output(child))


def peak_flops(dtype: torch.dtype, size: int = 2048) -> float:
    """The best of several products of two square matrices, in FLOP/s."""
    a, b = torch.randn(2, size, size).to(dtype)
    times = []
    for _ in range(8):
        began = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - began)
    return 2 * size**3 / min(times)


def child(context: int, width: int, batch: int, precision: str) -> dict[str, float]:
    from model import GPT, ModelConfig
    from training.device import autocast, keep_freed_memory
    from training.evaluation import cross_entropy
    from training.optimizer import Optimizer, OptimizerConfig

    model = GPT(ModelConfig(2, 4, width, context), VOCABULARY)
    optimizer = Optimizer(model, OptimizerConfig("adamw", 1e-3, 0.1, 0.9, 0.95, 0, 0.0))
    keep_freed_memory()
    tokens = torch.randint(VOCABULARY, (batch, context + 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        with autocast(torch.device("cpu"), precision):
            logits = model(tokens[:, :-1])
        cross_entropy(logits, tokens[:, 1:]).backward()
        optimizer.step(1.0)
        times.append(time.perf_counter() - began)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {
        "seconds": statistics.median(times[2:]),
        "memory": memory,
        "tokens": batch * context,
        "flops": batch * context * model.flops_per_token(),
        "peak": peak_flops(PEAKS[precision]),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        context, width, batch, precision = sys.argv[2:]
        print(json.dumps(child(int(context), int(width), int(batch), precision)))
    else:
        main()
