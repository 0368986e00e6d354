"""Seconds from `python train.py` to the end of the first training step, with a warm cache.

    python benchmarks/start.py [--rounds 7] [setting=value ...]

A first run fills the cache; its time is reported as "cold". The first step has ended when its line
appears in `metrics.jsonl`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import TRAIN, make_parser, spread


def main() -> None:
    parser = make_parser(__doc__, rounds=7)
    parser.add_argument("settings", nargs="*", help="settings of train.py")
    arguments = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as folder:
        cold, *warm = (
            first_step(Path(folder) / str(number), arguments.settings)
            for number in range(arguments.rounds + 1)
        )
    print(f"first step: median {spread(warm, '.2f', ' s')} of {len(warm)} runs; cold {cold:.2f} s")


def first_step(run: Path, settings: list[str]) -> float:
    command = [*TRAIN, f"run_dir={run.name}", "trainer.log_every=1", *settings]
    metrics = run / "metrics.jsonl"
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=run.parent, stdout=subprocess.DEVNULL) as process:
        while not (metrics.exists() and metrics.stat().st_size):
            if process.poll() is not None:
                raise SystemExit(f"train.py exited with status {process.returncode}")
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        process.kill()
    return seconds


if __name__ == "__main__":
    main()
