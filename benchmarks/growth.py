"""How step time and peak memory grow with the context length, without attention maps.

    python benchmarks/growth.py [--contexts 64 128 256 512 1024 2048]

Two sequences a step, two layers of width 128, in float32. Prints a table and the slopes of its
log-log lines: memory that is linear in the context has a slope of at most 1. Every point runs in
its own process, which measures the peak above its start after the steps.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from pathlib import Path
from statistics import linear_regression, median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness import Shape, configure, in_child, in_turn, make_parser, print_table, start

CONTEXTS = (64, 128, 256, 512, 1024, 2048)
BATCH, WIDTH, VOCABULARY, STEPS = 2, 128, 2048, 7


def main() -> None:
    parser = make_parser(__doc__, rounds=1)
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS)
    arguments = parser.parse_args()
    contexts, rounds = arguments.contexts, range(arguments.rounds)
    results = in_turn(contexts, rounds, lambda context, _: in_child(__file__, context))
    points = [tuple(map(median, zip(*found, strict=True))) for found in results.values()]
    rows = [
        (str(n), f"{ms:.0f}", f"{mb:.0f}") for n, (ms, mb) in zip(contexts, points, strict=True)
    ]
    print_table(("context length", "ms per step", "peak memory above start, MB"), rows)
    places = [math.log(context) for context in contexts]
    for what, values in zip(("time", "memory"), zip(*points, strict=True), strict=True):
        slope = linear_regression(places, [math.log(value) for value in values]).slope
        print(f"slope of {what}: {slope:.2f}")


def child(context: int) -> tuple[float, float]:
    """Milliseconds of a step, and the peak of memory in MB."""
    import torch

    from model import GPT, cross_entropy
    from training.device import keep_freed_memory
    from training.optimizer import Optimizer

    shape = Shape(context, VOCABULARY, n_layers=2, n_heads=4, d_model=WIDTH)
    config = configure(shape, "model=nano", "optimizer=adamw", "optimizer.lr=1e-3")
    model = GPT(config.model, VOCABULARY)
    optimizer = Optimizer(model, config.optimizer, STEPS)
    keep_freed_memory()
    tokens = torch.randint(VOCABULARY, (BATCH, context + 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for step in range(1, STEPS + 1):
        began = time.perf_counter()
        cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).backward()
        optimizer.step(step, torch.tensor(True))
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return median(times[2:]) * 1e3, memory / 1e6


if __name__ == "__main__":
    start(main, child)
