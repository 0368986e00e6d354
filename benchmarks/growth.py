"""How step time and peak memory grow with context length and width.

    python benchmarks/growth.py

Prints one table for each axis, the slopes of its log-log lines, and the share of the machine's
measured matrix-multiplication peak that a step reaches, in float32 and under bfloat16 autocast. The
batch shrinks as the context grows, so that a step always holds the same number of tokens: memory
that is linear in the context shows as a slope of 0. Every point is a process of its own.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    peaks = {each: peak_flops(getattr(torch, each)) for each in ("float32", "bfloat16")}
    told = ", ".join(f"{name} {flops / 1e9:,.0f} GFLOP/s" for name, flops in peaks.items())
    print(f"matmul peak: {told}\n")
    table("context length", [(context, 128) for context in CONTEXTS], 0, peaks)
    table("width", [(256, width) for width in WIDTHS], 1, peaks)


def table(axis: str, points: list[tuple[int, int]], column: int, peaks: dict[str, float]) -> None:
    print(
        f"| {axis} | ms a step | tokens/s | peak memory above start, MB | share of fp32 peak "
        "| ms a step, bf16 | share of bf16 peak |"
    )
    print("|---|---|---|---|---|---|---|")
    found = []
    for context, width in points:
        fp32, bf16 = (measure(context, width, precision) for precision in ("fp32", "bf16"))
        found.append(fp32)
        shares = [
            each["flops"] / each["seconds"] / peak
            for each, peak in zip((fp32, bf16), peaks.values(), strict=True)
        ]
        print(
            f"| {(context, width)[column]} | {fp32['seconds'] * 1000:.0f} "
            f"| {TOKENS / fp32['seconds']:,.0f} | {fp32['memory'] / 1e6:.0f} | {shares[0]:.0%} "
            f"| {bf16['seconds'] * 1000:.0f} | {shares[1]:.0%} |",
            flush=True,
        )
    xs = np.log([point[column] for point in points])
    slopes = {
        name: np.polyfit(xs, np.log([each[name] for each in found]), 1)[0]
        for name in ("seconds", "memory")
    }
    print(f"\nslope: time {slopes['seconds']:.2f}, memory {slopes['memory']:.2f}\n", flush=True)


def measure(context: int, width: int, precision: str) -> dict[str, float]:
    child = [sys.executable, __file__, "--child", str(context), str(width), precision]
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


def child(context: int, width: int, precision: str) -> dict[str, float]:
    from model import GPT, ModelConfig
    from training.device import autocast, keep_freed_memory
    from training.evaluation import cross_entropy
    from training.optimizer import Optimizer, OptimizerConfig

    model = GPT(ModelConfig(2, 4, width, context), VOCABULARY)
    optimizer = Optimizer(model, OptimizerConfig("adamw", 1e-3, 0.1, 0.9, 0.95, 0, 0.0))
    keep_freed_memory()
    tokens = torch.randint(VOCABULARY, (TOKENS // context, context + 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        with autocast(torch.device("cpu"), precision):
            logits = model(tokens[:, :-1])
        cross_entropy(logits, tokens[:, 1:]).backward()
        optimizer.step(1.0)
        times.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": statistics.median(times[2:]),
        "memory": (peak - before) * 1024,
        "flops": TOKENS * model.flops_per_token(),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
    else:
        main()
