"""Which optimizer the default run should have: the run itself, with each optimizer and seed.

    python benchmarks/optimizers.py                 # a quarter of an hour on two cores
    python benchmarks/optimizers.py trainer.max_steps=600 --seeds 1

Prints a Markdown table. Every run is a whole `python train.py` in a folder of its own; settings go
to all of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ARMS = {
    "muon (default)": [],
    "adamw, lr 5e-3": ["optimizer=adamw", "optimizer.lr=5e-3"],
    "adamw, lr 1e-2": ["optimizer=adamw", "optimizer.lr=1e-2"],
}
TRAIN = Path(__file__).resolve().parent.parent / "train.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("settings", nargs="*", help="settings of train.py for all runs")
    arguments = parser.parse_intermixed_args()
    print("| optimizer | seed | validation bpb | above the floor | in the loop | whole process |")
    print("|---|---|---|---|---|---|", flush=True)
    for seed in arguments.seeds:
        for name, settings in ARMS.items():
            summary, seconds = train([*settings, f"seed={seed}", *arguments.settings])
            print(
                f"| {name} | {seed} | {summary['val_bpb']:.4f} "
                f"| {summary['val_bpb'] / summary['floor_bpb'] - 1:.1%} "
                f"| {summary['seconds']:.0f} s | {seconds:.0f} s |",
                flush=True,
            )


def train(settings: list[str]) -> tuple[dict[str, float], float]:
    """What one run sums up, and the seconds of its whole process, with a cold cache."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, TRAIN, "run_dir=run", *settings],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - began
        return json.loads((Path(folder) / "run" / "summary.json").read_text()), seconds


if __name__ == "__main__":
    main()
