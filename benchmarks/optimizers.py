"""Compare optimizers for the default run: one run for each optimizer and seed.

    python benchmarks/optimizers.py                 # a quarter of an hour on two cores
    python benchmarks/optimizers.py trainer.max_steps=600 --seeds 1

Prints a Markdown table. Every run is a whole `python train.py` with a cold cache; settings given on
the command line apply to all runs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import in_turn, train

SIDES = {
    "muon (default)": [],
    "adamw, lr 5e-3": ["optimizer=adamw", "optimizer.lr=5e-3"],
    "adamw, lr 1e-2": ["optimizer=adamw", "optimizer.lr=1e-2"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("settings", nargs="*", help="settings of train.py, for all runs")
    arguments = parser.parse_intermixed_args()

    def print_row(side: str, seed: int) -> None:
        process, summary = train(*SIDES[side], f"seed={seed}", *arguments.settings)
        bpb, loop = summary["val_bpb"], summary["seconds"]
        above = bpb / summary["floor_bpb"] - 1
        row = f"| {side} | {seed} | {bpb:.4f} | {above:.1%} | {loop:.0f} s | {process:.0f} s |"
        print(row, flush=True)

    print("| optimizer | seed | validation bpb | above the floor | in the loop | whole process |")
    print("|---|---|---|---|---|---|", flush=True)
    in_turn(SIDES, arguments.seeds, print_row)


if __name__ == "__main__":
    main()
