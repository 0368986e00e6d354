"""Signals that ask a run to stop or to save.

SIGINT (Ctrl-C), SIGTERM, SIGHUP   finish the step, write a checkpoint, stop; the next one ends the
                                   process at once, unless it is a rank of torchrun
SIGUSR1                            write a checkpoint after the step, and continue
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from common.errors import print
from training.callback import Callback
from training.trainer import Trainer

STOP = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
SAVE = getattr(signal, "SIGUSR1", None)


class StopOnSignal(Callback):
    """Ends the loop after the step in which a signal to stop arrives on any rank, and requests a
    checkpoint where SIGUSR1 does.

    Python handles signals between two of its instructions, so a step that is in PyTorch would go on
    after the second one: a thread counts them, which PyTorch does not hold up. Ranks get the signal
    of a terminal twice; torchrun itself kills those that do not stop.
    """

    def __init__(self) -> None:
        self._stop = self._save = 0
        self._before: dict[int, Any] = {}
        self._writer: socket.socket | None = None

    def on_start(self, trainer: Trainer) -> None:
        if "LOCAL_RANK" not in os.environ:
            reader, self._writer = socket.socketpair()
            self._writer.setblocking(False)
            signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
            threading.Thread(target=_exit_on_second, args=[reader], daemon=True).start()
        self._before = {number: signal.signal(number, self._on_stop) for number in _heeded()}
        if SAVE:
            self._before[SAVE] = signal.signal(SAVE, self._on_save)

    def on_step(self, trainer: Trainer) -> None:
        trainer.stop_signal, save = trainer.ranks.max([self._stop, self._save])
        trainer.checkpoint_pending |= bool(save)
        self._save = 0

    def on_eval_batch(self, trainer: Trainer, done: int, total: int) -> None:
        self.on_step(trainer)

    def on_end(self, trainer: Trainer) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._writer:
            signal.set_wakeup_fd(-1)
            self._writer.close()  # which ends the thread

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        self._stop = self._stop or number

    def _on_save(self, number: int, _frame: FrameType | None) -> None:
        self._save = 1


def _exit_on_second(reader: socket.socket) -> None:
    """End the process at its second signal to stop, with the status of a death by that signal."""
    with reader:
        stops = (byte[0] for byte in iter(lambda: reader.recv(1), b"") if byte[0] in STOP)
        next(stops, None)
        if second := next(stops, None):
            os._exit(128 + second)


def exit_stopped(trainer: Trainer, run: Path) -> NoReturn:
    """End the process of a run that a signal stopped, with the status of a death by that signal."""
    if trainer.ranks.is_main:
        name, step = signal.Signals(trainer.stop_signal).name, trainer.state.step
        command = shlex.join(["python", "train.py", f"resume={run}"])
        print(f"stopped by {name} after step {step}. To continue: {command}", file=sys.stderr)
    sys.exit(128 + trainer.stop_signal)


def _heeded() -> list[int]:
    """The signals to stop that are not ignored: `nohup` ignores SIGHUP, which then stays so."""
    return [number for number in STOP if signal.getsignal(number) != signal.SIG_IGN]
