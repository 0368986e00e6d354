"""Signals that ask a run to stop or to save.

SIGTERM, SIGINT (Ctrl-C), SIGHUP   finish the step, write a checkpoint, stop; a second SIGTERM or
                                   SIGINT: stop at once
SIGUSR1                            write a checkpoint after the step, and continue

Outside the training loop there is nothing to finish: use `stop_at_once`.

Promises: a process stops wherever it is, also while it waits in C++ for other ranks, and no
exception is raised at a random place. Python's own handlers run in the main thread alone, and only
between two of its instructions; so a thread receives the signals here.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from files import remove_unfinished

# A second signal to stop within this time can be the first one again: torchrun forwards the SIGINT
# that the terminal has already sent to every process.
ECHO_SECONDS = 1.0


class Stopped(Exception):  # noqa: N818
    """A signal stopped the run after a completed step, which is in the last checkpoint."""

    def __init__(self, step: int, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} after step {step}")
        self.step, self.status = step, 128 + number  # as shells report a death by signal


def stop_at_once() -> None:
    """From now on, except inside a `SignalMonitor`, SIGINT, SIGTERM and SIGHUP end the process with
    one word and the status that shells expect, and SIGUSR1 is ignored.

    Call it before the imports that take seconds.
    """
    listener = _Listener(_end)
    listener.start(_stop_signals())
    # Threads end before the interpreter does.
    atexit.register(listener.restore, signal.SIG_DFL)
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def stop_with_readers() -> None:
    """From now on, stop as for SIGHUP when standard output or standard error can no longer be
    written: the program that reads it has ended (`| head -1`, a killed `tee`), or the disk is full.
    What is printed later is lost."""
    for name in ("stdout", "stderr"):
        if not isinstance(stream := getattr(sys, name), _LastingStream):
            setattr(sys, name, _LastingStream(stream))


class _LastingStream:
    """A stream that raises SIGHUP when it can no longer be written, and then discards its text."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._lasting():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._lasting():
            self._stream.flush()

    @contextmanager
    def _lasting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            if not isinstance(error, BrokenPipeError):
                print(f"error: the output cannot be written ({error.strerror})", file=sys.stderr)
            signal.raise_signal(getattr(signal, "SIGHUP", signal.SIGTERM))


class SignalMonitor:
    """Records the signals that arrive inside its `with` block; the trainer polls it every step.

    `stop` is the number of the signal to stop, or 0; `save` whether a checkpoint was requested.
    """

    def __init__(self) -> None:
        self.stop = 0
        self.save = False
        self._stopped_at = 0.0
        self._listener = _Listener(self._receive)

    def __enter__(self) -> SignalMonitor:
        if threading.current_thread() is threading.main_thread():  # no other may set handlers
            save = getattr(signal, "SIGUSR1", None)
            self._listener.start([*_stop_signals(), *([save] if save else [])])
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.restore()

    def _receive(self, number: int) -> None:
        now = time.monotonic()
        if number == getattr(signal, "SIGUSR1", None):
            self.save = True
        elif not self.stop:
            self.stop, self._stopped_at = number, now
        elif _is_typed(number) or (
            number in (signal.SIGINT, signal.SIGTERM) and now - self._stopped_at > ECHO_SECONDS
        ):
            _end(number)


class _Listener:
    """Calls `receive` with the number of each signal, in a thread of its own."""

    def __init__(self, receive: Callable[[int], None]) -> None:
        self.receive = receive
        self.handlers: dict[int, Any] = {}

    def start(self, numbers: Iterable[int]) -> None:
        self.reader, self.writer = socket.socketpair()
        self.writer.setblocking(False)
        self.outer = signal.set_wakeup_fd(self.writer.fileno(), warn_on_full_buffer=False)
        self.handlers = {number: signal.signal(number, _leave_to_listener) for number in numbers}
        threading.Thread(target=self._listen, name="signals", daemon=True).start()

    def restore(self, handler: signal.Handlers | None = None) -> None:
        """Restore the handlers that were replaced, or set `handler` in their place."""
        for number, before in self.handlers.items():
            signal.signal(number, before if handler is None else handler)
        if self.handlers:
            signal.set_wakeup_fd(self.outer)
            self.writer.close()
            self.handlers = {}

    def _listen(self) -> None:
        with self.reader:
            while number := self.reader.recv(1):
                # Python sends the numbers of all signals, also of those that others handle.
                if signal.getsignal(number[0]) is _leave_to_listener:
                    self.receive(number[0])


def _leave_to_listener(number: int, frame: FrameType | None) -> None:
    """Python's handler of every signal that a listener receives."""


def _stop_signals() -> list[int]:
    """The signals to stop that this platform has. `nohup` ignores SIGHUP, which then stays so."""
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) == signal.SIG_IGN:
        return [signal.SIGINT, signal.SIGTERM]
    return [signal.SIGINT, signal.SIGTERM, hangup]


def _is_typed(number: int) -> bool:
    """Whether a signal is a Ctrl-C, and not one that torchrun may have repeated."""
    return number == signal.SIGINT and "LOCAL_RANK" not in os.environ


def _end(number: int) -> None:
    """End the process, whatever its main thread is doing."""
    try:
        os.write(2, b"\nstopped\n")
        remove_unfinished()
        for child in multiprocessing.active_children():  # the workers of a sweep
            if child.pid:
                os.kill(child.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    finally:
        os._exit(128 + number)
