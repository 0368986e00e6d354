"""What watching costs: the time inside every observer of a default run against the whole run.

    python benchmarks/watching.py [--rounds 3] [setting=value ...]

Counted are all calls of all observers, with the imports that they cause, from the first step to the
closing sample; the run writes to a terminal, so that its bar is live. Each round also takes the
same run with nothing watched: whole process against whole process, of which two equal ones differ
by more on a shared machine than watching costs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

NOBODY = ["observe.terminal=false", "observe.tensorboard=false"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("settings", nargs="*")
    arguments = parser.parse_intermixed_args()
    shares, ratios = [], []
    for number in range(arguments.rounds):
        spent, whole, watched = measure(arguments.settings)
        *_, alone = measure([*arguments.settings, *NOBODY])
        shares.append(sum(spent.values()) / whole)
        ratios.append(watched / alone - 1)
        told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items())
        print(
            f"round {number + 1}: {shares[-1]:.2%} of {whole:.1f} s: {told}; "
            f"process {watched:.1f} s, unwatched {alone:.1f} s: {ratios[-1]:+.1%}",
            flush=True,
        )
    print(f"median: inside {statistics.median(shares):.2%}, whole {statistics.median(ratios):+.1%}")


def measure(settings: list[str]) -> tuple[dict[str, float], float, float]:
    """Of one run: seconds inside each observer, in the script, and of the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", *settings]
        # `script` gives the process a terminal of its own.
        began = time.perf_counter()
        subprocess.run(
            ["script", "--quiet", "--return", "--command", shlex.join(command), "/dev/null"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "COLUMNS": "100"},
        )
        seconds = time.perf_counter() - began
        spent, whole = json.loads((Path(folder) / "spent.json").read_text())
    return spent, whole, seconds


class Timed:
    """An observer whose every call is timed."""

    def __init__(self, observer: Any, spent: dict[str, float]) -> None:
        self.observer, self.spent, self.name = observer, spent, type(observer).__name__
        spent[self.name] = 0.0

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any) -> None:
            began = time.perf_counter()
            getattr(self.observer, method)(*arguments)
            self.spent[self.name] += time.perf_counter() - began

        return call


def child() -> None:
    import train

    spent: dict[str, float] = {}
    make = train.build_observers

    def observers(*arguments: Any) -> list[Any]:
        began = time.perf_counter()
        made = [Timed(each, spent) for each in make(*arguments)]
        spent["imports"] = time.perf_counter() - began
        return made

    vars(train)["build_observers"] = observers
    began = time.perf_counter()
    train.run_script("train", train.main)
    Path("spent.json").write_text(json.dumps([spent, time.perf_counter() - began]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        del sys.argv[1]
        child()
    else:
        main()
