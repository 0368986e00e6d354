"""Training tokens per second and memory for longer contexts and wider models, beside nanoGPT's.

    python benchmarks/scale.py --nanogpt CHECKOUT --plot scale.png

Two layers with heads of width 48, a vocabulary of 1,024 and 4,096 tokens a step, float32, plain
AdamW, on a CPU: the default block here, GPT-2's in nanoGPT. Both sides run in turn, each in its own
process; memory is the most that its process had.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import harness, steps

CONTEXTS = (256, 1024, 4096)
WIDTHS = (96, 384, 768)
TOKENS, VOCAB, N_STEPS = 4096, 1024, 8
SIDES: dict[str, tuple[str, ...]] = {"glassgpt": ("model=nano", *steps.ADAMW)}


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
            heads = width // 48
            shape = harness.Shape(context, VOCAB, n_layers=2, n_heads=heads, d_model=width)
            task = steps.Task(shape, TOKENS // context, False, SIDES)

            def measure(side: str, number: int, task: steps.Task = task) -> tuple[float, float]:
                return harness.in_child(steps.measure, side, task, "cpu", 1, N_STEPS, checkout)

            found = harness.in_turn((steps.PEER, *SIDES), range(arguments.rounds), measure)
            row = [f"{width}", f"{context:,}"]
            for side, results in found.items():
                each = [TOKENS / seconds for seconds, _ in results]
                rates[width, context, side] = median(each)
                row += [harness.spread(each, ",.0f"), f"{max(most for _, most in results):.2f}"]
            pairs = zip(*found.values(), strict=True)
            row.append(f"{median(theirs[0] / ours[0] for theirs, ours in pairs):.2f}")
            rows.append(row)
    columns = [f"{side}{unit}" for side in found for unit in ("", ", GB")]
    harness.print_table(("width", "context", *columns, "ratio"), rows)
    if arguments.plot:
        plot(rates, arguments.plot)


def plot(rates: dict[tuple[int, int, str], float], file: Path) -> None:
    """Tokens per second by context, a line for each width and side."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for colour, width in zip(("#1b6ca8", "#c1440e", "#3c7a3c"), WIDTHS, strict=True):
        for side, style in zip((steps.PEER, *SIDES), ("--", "-"), strict=True):
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
