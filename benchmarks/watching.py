"""What watching costs: the time inside every observer of a default run against the whole run.

    python benchmarks/watching.py [--rounds 3] [setting=value ...]

Counted are all calls of all observers, with the imports that they cause, from the first step to the
closing sample; the run writes to a terminal, so that its bar is live. What watching might cost
besides, by slower steps after a look, is measured in a second run, which is watched for ten steps
and left alone for ten in turn: the time of a step outside of the observers. Each round also takes
a run with nothing watched (but its metrics file, which every run has): whole process against whole
process, of which two equal ones differ by more on a shared machine than watching costs.
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
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

NOBODY = ["observe.terminal=false", "observe.tensorboard=false"]
BLOCK = 10  # steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("settings", nargs="*")
    arguments = parser.parse_intermixed_args()
    shares, slower, ratios = [], [], []
    for number in range(arguments.rounds):
        spent, whole, watched = measure("--whole", arguments.settings)
        *_, alone = measure("--whole", [*arguments.settings, *NOBODY])
        outside, *_ = measure("--in-turn", arguments.settings)
        shares.append(sum(spent.values()) / whole)
        slower.append(statistics.mean(outside.values()) - 1)
        error = statistics.stdev(outside.values()) / len(outside) ** 0.5
        ratios.append(watched / alone - 1)
        told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items())
        print(
            f"round {number + 1}: {shares[-1]:.2%} of {whole:.1f} s: {told}; "
            f"steps outside {slower[-1]:+.1%} (standard error {error:.1%}); "
            f"process {watched:.1f} s, unwatched {alone:.1f} s: {ratios[-1]:+.1%}",
            flush=True,
        )
    print(
        f"median: inside {statistics.median(shares):.2%}, "
        f"steps outside {statistics.median(slower):+.1%}, whole {statistics.median(ratios):+.1%}"
    )


def measure(how: str, settings: list[str]) -> tuple[dict[str, float], float, float]:
    """Of one run: what the child measured, seconds in the script, and of the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", how, *settings]
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
        measured, whole = json.loads((Path(folder) / "measured.json").read_text())
    return measured, whole, seconds


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


class InTurn:
    """Observers who watch every other block of steps; the time between their calls, by block."""

    def __init__(self, observers: list[Any], outside: dict[int, float]) -> None:
        self.observers, self.outside, self.left = observers, outside, 0.0

    def __getattr__(self, method: str) -> Any:
        def call(step: int, *arguments: Any) -> None:
            block = (step - 1) // BLOCK
            within_step = method in ("on_gradients", "on_step")
            if within_step:
                self.outside[block] += time.perf_counter() - self.left
            if block % 2 == 0 or not within_step:
                for observer in self.observers:
                    getattr(observer, method)(step, *arguments)
            self.left = time.perf_counter()

        return call


def child(how: str) -> None:
    import train

    spent: dict[str, float] = {}
    outside: dict[int, float] = defaultdict(float)
    make = train.build_observers

    def observers(*arguments: Any) -> list[Any]:
        began = time.perf_counter()
        made = make(*arguments)
        spent["imports"] = time.perf_counter() - began
        if how == "--in-turn":
            return [InTurn(made, outside)]
        return [Timed(each, spent) for each in made]

    vars(train)["build_observers"] = observers
    began = time.perf_counter()
    train.run_script("train", train.main)
    whole = time.perf_counter() - began
    # Each watched block against the mean of its neighbours; the first is slow for other reasons.
    slower = {
        block: 2 * outside[block] / (outside[block - 1] + outside[block + 1])
        for block in range(2, max(outside, default=0), 2)
    }
    measured = slower if how == "--in-turn" else spent
    Path("measured.json").write_text(json.dumps([measured, whole]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _, how = sys.argv.pop(1), sys.argv.pop(1)
        child(how)
    else:
        main()
