"""What watching costs: the time that a default run spends inside its observers.

    python benchmarks/watching.py [--rounds 3] [setting=value ...]

The time includes all calls of all observers, and the imports that they cause, from the first step
to the final sample. The run writes to a terminal, so that its progress bar is live. Observers could
also slow down the steps that follow. A second run measures this: it alternates between ten steps
with observers and ten without, and compares the step times outside of the observers.
"""

from __future__ import annotations

import json
import runpy
import shlex
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness import TRAIN, child_command, make_parser, run, spread, start

BLOCK = 10  # steps


def main() -> None:
    parser = make_parser(__doc__, 3)
    parser.add_argument("settings", nargs="*", help="settings of train.py, for all runs")
    arguments = parser.parse_intermixed_args()
    shares, slower = [], []
    for number in range(arguments.rounds):
        inside, whole = measure("whole", arguments.settings)
        outside, _ = measure("in turn", arguments.settings)
        shares.append(sum(inside.values()) / whole)
        slower.append(mean(outside.values()) - 1)
        error = stdev(outside.values()) / len(outside) ** 0.5
        parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in inside.items())
        print(
            f"round {number + 1}: {shares[-1]:.2%} of {whole:.1f} s inside the observers: {parts}; "
            f"steps outside of them {slower[-1]:+.1%} (standard error {error:.1%})",
            flush=True,
        )
    print(f"median: inside {spread(shares, '.2%')}, steps outside {spread(slower, '+.1%')}")


def measure(how: str, settings: list[str]) -> tuple[dict[str, float], float]:
    """What the `child` of a whole process measured, and seconds inside the script."""
    with tempfile.TemporaryDirectory() as folder:
        # `script` gives the process its own terminal.
        terminal = ["script", "--quiet", "--return", "/dev/null", "--command"]
        command = shlex.join(child_command(__file__, how, settings))
        run([*terminal, command], Path(folder), COLUMNS="100")
        inside, seconds = json.loads((Path(folder) / "measured.json").read_text())
        return inside, seconds


class Watched:
    """An observer whose every call is handed to `call(method, *arguments)`."""

    def __init__(self, call: Callable[..., None]) -> None:
        self.call = call

    def __getattr__(self, method: str) -> Callable[..., None]:
        return partial(self.call, method)


def child(how: str, settings: list[str]) -> None:
    """Write measured.json: what was measured in a run with these settings, and its seconds."""
    import common.startup  # noqa: F401  # isort: skip
    import observe.build as observe

    inside: dict[str, float] = {}
    outside: dict[int, float] = defaultdict(float)
    left = 0.0
    observers: list[Any] = []
    build_observers = observe.build_observers

    def timed(observer: Any, method: str, *arguments: Any) -> None:
        began = time.perf_counter()
        getattr(observer, method)(*arguments)
        inside[type(observer).__name__] += time.perf_counter() - began

    def every_other_block(method: str, trainer: Any, *arguments: Any) -> None:
        nonlocal left
        block = (trainer.state.step - 1) // BLOCK
        within_step = method in ("on_gradients", "on_step")
        if within_step:
            outside[block] += time.perf_counter() - left
        if block % 2 == 0 or not within_step:
            for observer in observers:
                getattr(observer, method)(trainer, *arguments)
        left = time.perf_counter()

    def build(*arguments: Any) -> list[Watched]:
        began = time.perf_counter()
        observers.extend(build_observers(*arguments))
        inside["imports"] = time.perf_counter() - began
        if how == "in turn":
            return [Watched(every_other_block)]
        inside.update({type(observer).__name__: 0.0 for observer in observers})
        return [Watched(partial(timed, observer)) for observer in observers]

    observe.build_observers = build  # type: ignore[assignment]
    seconds = run_training(settings)
    measured = relative(outside) if how == "in turn" else inside
    Path("measured.json").write_text(json.dumps([measured, seconds]))


def run_training(settings: list[str]) -> float:
    """The seconds of train.py with these settings."""
    sys.argv[1:] = settings
    began = time.perf_counter()
    with suppress(SystemExit):  # with which it ends
        runpy.run_path(TRAIN[1], run_name="__main__")
    return time.perf_counter() - began


def relative(outside: Mapping[int, float]) -> dict[int, float]:
    """The seconds of each watched block relative to the mean of its neighbours, without those of
    the first, which is slow for other reasons."""
    return {
        block: 2 * outside[block] / (outside[block - 1] + outside[block + 1])
        for block in range(2, max(outside, default=0), 2)
    }


if __name__ == "__main__":
    start(main, child)
