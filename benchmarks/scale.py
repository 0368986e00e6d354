"""Training tokens per second and memory for longer contexts and wider models, beside nanoGPT's.

    python benchmarks/scale.py --nanogpt CHECKOUT --plot scale.png

Two layers with heads of width 48, a vocabulary of 1,024 and 4,096 tokens a step, float32, plain
AdamW, on a CPU: the default block here, GPT-2's in nanoGPT. Both sides run in turn, each in its own
process; memory is the most that its process had.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import harness, steps

CONTEXTS = (256, 1024, 4096)
WIDTHS = (96, 384, 768)
TOKENS, VOCAB = 4096, 1024
SIDES = ("nanoGPT", "glassgpt")


def main() -> None:
    parser = harness.make_parser(__doc__, 3)
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--plot", type=Path, help="a file for the plot")
    arguments = parser.parse_args()
    checkout = arguments.nanogpt.resolve()
    rates: dict[tuple[int, int, str], float] = {}
    rows = []
    for width in WIDTHS:
        for context in CONTEXTS:

            def rate(side: str, number: int, sizes: tuple[int, int] = (context, width)) -> Any:
                return harness.in_child(measure, side, *sizes, checkout)

            found = harness.in_turn(SIDES, range(arguments.rounds), rate)
            row = [f"{width}", f"{context:,}"]
            for side, results in found.items():
                each = [TOKENS / seconds for seconds, _ in results]
                rates[width, context, side] = median(each)
                row += [harness.spread(each, ",.0f"), f"{max(most for _, most in results):.2f}"]
            pairs = zip(found["nanoGPT"], found["glassgpt"], strict=True)
            row.append(f"{median(theirs[0] / ours[0] for theirs, ours in pairs):.2f}")
            rows.append(row)
    harness.print_table(
        (
            "width",
            "context",
            *(f"{side}{unit}" for side in SIDES for unit in ("", ", GB")),
            "ratio",
        ),
        rows,
    )
    if arguments.plot:
        plot(rates, arguments.plot)


def measure(side: str, context: int, width: int, checkout: Path) -> tuple[float, float]:
    """Seconds of a step, the median of five or fewer, and the most memory in GB."""
    import common.startup  # noqa: F401  # isort: skip

    shape = harness.Shape(context, VOCAB, n_layers=2, n_heads=width // 48, d_model=width)
    task = steps.Task(shape, TOKENS // context, False, {})
    tokens = np.random.default_rng(0).integers(0, VOCAB, 10**5).astype(np.uint16)
    if side == "nanoGPT":
        step = steps.peer_step(task, tokens, "cpu", checkout)
    else:
        step = steps.our_step(task, tokens, "cpu", ("model=nano", *steps.ADAMW))
    step()
    taken: list[float] = []
    while len(taken) < 3 or (len(taken) < 20 and sum(taken) < 3):
        began = time.perf_counter()
        step()
        taken.append(time.perf_counter() - began)
    scale = 1e9 if sys.platform == "darwin" else 1e6  # bytes there, KiB elsewhere
    return median(taken), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def plot(rates: dict[tuple[int, int, str], float], file: Path) -> None:
    """Tokens per second by context, a line for each width and side."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for colour, width in zip(("#1b6ca8", "#c1440e", "#3c7a3c"), WIDTHS, strict=True):
        for side, style in zip(SIDES, ("--", "-"), strict=True):
            values = [rates[width, context, side] for context in CONTEXTS]
            label = f"{side}, width {width}"
            axes.loglog(CONTEXTS, values, style, marker="o", color=colour, label=label)
    axes.set_xticks(CONTEXTS, [f"{context:,}" for context in CONTEXTS])
    axes.minorticks_off()
    axes.set_xlabel("context length in tokens")
    axes.set_ylabel("training tokens per second")
    axes.legend(fontsize=8)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
