"""How a run is asked to stop, or to save, from outside.

SIGTERM, SIGINT (Ctrl-C)   finish the step, write a checkpoint, stop; a second Ctrl-C at once
SIGUSR1                    write a checkpoint after the step, and go on

Outside the loop there is nothing to finish: `stop_at_once` does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any


class Stopped(Exception):  # noqa: N818
    """A signal ended the run after a whole step; everything is in its checkpoint."""

    def __init__(self, step: int, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} after step {step}")
        self.step, self.status = step, 128 + number  # as shells tell a death by signal


def stop_at_once(importing: bool = False) -> None:
    """From here on, until `Signals` is entered and after it is left, signals to stop end the
    process with one word and the status that shells expect, and SIGUSR1 does nothing.

    While `importing`, without the clean-up of an exception, which some modules would swallow.
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


class Signals:
    """Notes the signals that arrive while it is entered; the trainer looks after every step."""

    def __init__(self) -> None:
        self.stop = 0
        self.save = False
        self._stopped_at = 0.0
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # no other may set handlers
            for name in ("SIGTERM", "SIGINT", "SIGUSR1"):
                if number := getattr(signal, name, None):
                    self._handlers[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == getattr(signal, "SIGUSR1", None):
            self.save = True
        elif number == signal.SIGINT and self.stop:
            # torchrun passes on what the terminal has sent to every process already.
            if "LOCAL_RANK" not in os.environ or time.monotonic() - self._stopped_at > 1:
                raise KeyboardInterrupt
        else:
            self.stop, self._stopped_at = number, time.monotonic()
