"""Signals in the training loop; elsewhere they have their default action. SIGINT (Ctrl-C), SIGTERM
and SIGHUP finish the step, write a checkpoint and stop; SIGUSR1 writes one and continues."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from common.errors import as_argument, printable
from common.signals import FirstSignal
from training.callback import Callback
from training.trainer import Trainer

STOP = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows lacks the last
SAVE = getattr(signal, "SIGUSR1", None)  # and this


class StopOnSignal(Callback):
    """Stops all ranks after the step in which a signal arrives on any. A second one, a second later
    or more, has its default action, but not with torchrun, which repeats the terminal's Ctrl-C."""

    def on_start(self, trainer: Trainer) -> None:
        self._stop = self._save = 0
        stop = [getattr(signal, name) for name in STOP if hasattr(signal, name)]
        self._first = FirstSignal(stop, self._request_stop, once="LOCAL_RANK" in os.environ)
        self._before = signal.getsignal(SAVE) if SAVE else signal.SIG_IGN
        if SAVE and self._before != signal.SIG_IGN:
            signal.signal(SAVE, self._request_save)

    def on_step(self, trainer: Trainer) -> None:
        trainer.stop_signal, save = trainer.ranks.max([self._stop, self._save])
        trainer.checkpoint_pending |= bool(save)
        self._save = 0

    def on_eval_batch(self, trainer: Trainer, done: int, total: int) -> None:
        self.on_step(trainer)

    def on_end(self, trainer: Trainer) -> None:
        self._first.restore()
        if SAVE:
            signal.signal(SAVE, self._before)

    def _request_stop(self, number: int) -> None:
        self._stop = number

    def _request_save(self, _number: int, _frame: FrameType | None) -> None:
        self._save = 1


def exit_stopped(trainer: Trainer, run: Path) -> NoReturn:
    """End the process of a run that a signal stopped, with the status of a death by that signal."""
    if trainer.ranks.is_main:
        name, step = signal.Signals(trainer.stop_signal).name, trainer.state.step
        command = f"python train.py resume={as_argument(run)}"
        said = f"stopped by {name} after step {step}. To continue: {command}"
        print(printable(said), file=sys.stderr)
    sys.exit(128 + trainer.stop_signal)
