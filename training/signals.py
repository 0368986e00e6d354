"""Signals that ask a run to stop or to save.

SIGTERM, SIGINT (Ctrl-C)   finish the step, write a checkpoint, stop; a second Ctrl-C: stop at once
SIGUSR1                    write a checkpoint after the step, and continue

Outside the training loop there is nothing to finish: use `stop_at_once`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any


class Stopped(Exception):  # noqa: N818
    """A signal stopped the run after a completed step, which is in the last checkpoint."""

    def __init__(self, step: int, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} after step {step}")
        self.step, self.status = step, 128 + number  # as shells report a death by signal


def stop_at_once(importing: bool = False) -> None:
    """From now on, except inside a `SignalMonitor`, SIGINT and SIGTERM end the process with one
    word and the status that shells expect, and SIGUSR1 is ignored.

    While `importing`, skip the clean-up of an exception, which some modules would swallow.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        print("\nstopped", file=sys.stderr, flush=True)
        if importing:
            os._exit(128 + number)
        sys.exit(128 + number)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


class SignalMonitor:
    """Records the signals that arrive inside its `with` block; the trainer polls it every step.

    `stop` is the number of the signal to stop, or 0; `save` whether a checkpoint was requested.
    """

    def __init__(self) -> None:
        self.stop = 0
        self.save = False
        self._stopped_at = 0.0
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> SignalMonitor:
        if threading.current_thread() is threading.main_thread():  # no other may set handlers
            for name in ("SIGTERM", "SIGINT", "SIGUSR1"):
                if number := getattr(signal, name, None):
                    self._handlers[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if number == getattr(signal, "SIGUSR1", None):
            self.save = True
        elif number == signal.SIGINT and self.stop:
            # torchrun forwards the SIGINT that the terminal has already sent to every process.
            if "LOCAL_RANK" not in os.environ or time.monotonic() - self._stopped_at > 1:
                raise KeyboardInterrupt
        else:
            self.stop, self._stopped_at = number, time.monotonic()
