"""What watching costs: the time inside every observer of a default run against the whole run.

    python benchmarks/watching.py [--rounds 3] [setting=value ...]

Counted are all calls of all observers, with the imports that they cause, from the first step to the
closing sample. Two whole runs, one watched and one not, would not show it: two equal runs differ by
more on a shared machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("settings", nargs="*")
    arguments = parser.parse_intermixed_args()
    shares = []
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            child = [sys.executable, __file__, "--child", *arguments.settings]
            output = subprocess.check_output(child, cwd=folder, text=True)
        *_, line = output.splitlines()
        spent, whole = json.loads(line)
        shares.append(sum(spent.values()) / whole)
        told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items())
        print(f"round {number + 1}: {shares[-1]:.2%} of {whole:.1f} s: {told}", flush=True)
    print(f"median {statistics.median(shares):.2%}")


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
    make = train._observers

    def observers(*arguments: Any) -> list[Any]:
        began = time.perf_counter()
        made = [Timed(each, spent) for each in make(*arguments)]
        spent["imports"] = time.perf_counter() - began
        return made

    vars(train)["_observers"] = observers
    began = time.perf_counter()
    train.run_script("train", train.main)
    print(json.dumps([spent, time.perf_counter() - began]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        del sys.argv[1]
        child()
    else:
        main()
