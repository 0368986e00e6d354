"""What watching costs: the time that a default run spends inside its observers.

    python benchmarks/watching.py [--rounds 3] [setting=value ...]

The time includes all calls of all observers, and the imports that they cause, from the first step
to the final sample. The run writes as to a terminal, so that its progress bar is live.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness import TRAIN, in_child, make_parser, spread


def main() -> None:
    parser = make_parser(__doc__, 3)
    parser.add_argument("settings", nargs="*", help="settings of train.py, for all runs")
    arguments = parser.parse_intermixed_args()
    shares = []
    for number in range(arguments.rounds):
        inside, whole = in_child(measure, arguments.settings)
        shares.append(sum(inside.values()) / whole)
        parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in inside.items())
        print(
            f"round {number + 1}: {shares[-1]:.2%} of {whole:.1f} s inside the observers: {parts}",
            flush=True,
        )
    print(f"median: {spread(shares, '.2%')}")


class Watched:
    """An observer whose every call is handed to `call(method, *arguments)`."""

    def __init__(self, call: Callable[..., None]) -> None:
        self.call = call

    def __getattr__(self, method: str) -> Callable[..., None]:
        return partial(self.call, method)


def measure(settings: list[str]) -> tuple[dict[str, float], float]:
    """The seconds inside each observer of a run with these settings, and of the whole script."""
    os.environ.update(FORCE_COLOR="1", COLUMNS="100")  # for Rich, this is a terminal

    import common.startup  # noqa: F401  # isort: skip
    import observe.build as observe

    inside: dict[str, float] = {}
    build_observers = observe.build_observers

    def timed(observer: Any, method: str, *arguments: Any) -> None:
        began = time.perf_counter()
        getattr(observer, method)(*arguments)
        inside[type(observer).__name__] += time.perf_counter() - began

    def build(*arguments: Any) -> list[Watched]:
        began = time.perf_counter()
        observers = [*build_observers(*arguments)]
        inside["imports"] = time.perf_counter() - began
        inside.update({type(observer).__name__: 0.0 for observer in observers})
        return [Watched(partial(timed, observer)) for observer in observers]

    observe.build_observers = build  # type: ignore[assignment]
    sys.argv[1:] = settings
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        os.chdir(folder)
        began = time.perf_counter()
        with redirect_stdout(nowhere), suppress(SystemExit):  # with which the script ends
            runpy.run_path(TRAIN[1], run_name="__main__")
        return inside, time.perf_counter() - began


if __name__ == "__main__":
    main()
