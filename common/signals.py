"""One handler for several signals that end what a process does."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType

TOGETHER = 1.0  # seconds: a terminal that closes, or a service manager, sends more than one


class FirstSignal:
    """Calls `act` with the first of some signals that arrives. Those that follow within a second
    count as one with it; a later one does what it did before, or nothing with `once`. Signals that
    are ignored stay so, such as SIGHUP under `nohup`.

    A handler that replaced others would race with their signals, of which Python then complains.
    """

    def __init__(
        self, numbers: Iterable[int], act: Callable[[int], object], once: bool = False
    ) -> None:
        self._act, self._once = act, once
        self._first: float | None = None
        handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._receive) for number in handled}

    def restore(self) -> None:
        """Put the handlers back that were there before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._first is None:
            self._first = time.monotonic()
            self._act(number)
        elif time.monotonic() - self._first > TOGETHER and not self._once:
            before = self._before[number]
            if callable(before):
                before(number, frame)
            else:  # the process ends here
                signal.signal(number, before)
                signal.raise_signal(number)
