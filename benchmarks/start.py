"""Seconds from `python train.py` to the end of the first training step, on a warm cache.

    python benchmarks/start.py [--rounds 7] [setting=value ...]

The cache is filled by a first run that is not counted. The step is over when its line stands in
`metrics.jsonl`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = Path(__file__).resolve().parent.parent / "train.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("settings", nargs="*")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first, *times = (
            first_step(Path(folder), f"run{number}", arguments.settings)
            for number in range(arguments.rounds + 1)
        )
    print(
        f"first step after {statistics.median(times):.2f} s "
        f"(median of {len(times)}, {min(times):.2f} to {max(times):.2f}); cold {first:.2f} s"
    )


def first_step(folder: Path, run: str, settings: list[str]) -> float:
    command = [sys.executable, str(TRAIN), f"run_dir={run}", "trainer.log_every=1", *settings]
    metrics = folder / run / "metrics.jsonl"
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        while not (metrics.exists() and metrics.stat().st_size):
            if process.poll() is not None:
                raise SystemExit(f"train.py ended with status {process.returncode}")
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        process.kill()
    return seconds


if __name__ == "__main__":
    main()
