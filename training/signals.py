"""How a run is asked to stop, or to save, from outside.

SIGTERM, SIGINT (Ctrl-C)   finish the step, write a checkpoint, stop; a second Ctrl-C at once
SIGUSR1                    write a checkpoint after the step, and go on
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Stopped(Exception):  # noqa: N818
    """A signal ended the run after a whole step; everything is in its checkpoint."""

    def __init__(self, step: int, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} after step {step}")
        self.step, self.status = step, 128 + number  # as shells tell a death by signal


class Signals:
    """Notes the signals that arrive while it is entered; the trainer looks after every step."""

    def __init__(self) -> None:
        self.stop = 0
        self.save = False
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
            raise KeyboardInterrupt
        else:
            self.stop = number
