"""Signals in the training loop; elsewhere they have their default action. SIGINT (Ctrl-C), SIGTERM
and SIGHUP finish the step, write a checkpoint and stop; SIGUSR1 writes one and continues."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from common.errors import as_argument, print
from training.callback import Callback
from training.trainer import Trainer

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")  # Windows lacks two
SAVE = getattr(signal, "SIGUSR1", None)


class StopOnSignal(Callback):
    """Stops all ranks after the step in which a signal arrives on any. The second one has its
    default action. Signals that are ignored stay so, such as SIGHUP under `nohup`."""

    def on_start(self, trainer: Trainer) -> None:
        self._stop = self._save = 0
        numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
        handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._receive) for number in handled}

    def on_step(self, trainer: Trainer) -> None:
        trainer.stop_signal, save = trainer.ranks.max([self._stop, self._save])
        trainer.checkpoint_pending |= bool(save)
        self._save = 0

    def on_eval_batch(self, trainer: Trainer, done: int, total: int) -> None:
        self.on_step(trainer)

    def on_end(self, trainer: Trainer) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if number == SAVE:
            self._save = 1
            return
        self._stop = self._stop or number
        if "LOCAL_RANK" not in os.environ:  # torchrun repeats the terminal's Ctrl-C
            for signum, handler in self._before.items():
                if signum != SAVE:
                    signal.signal(signum, handler)


def exit_stopped(trainer: Trainer, run: Path) -> NoReturn:
    """End the process of a run that a signal stopped, with the status of a death by that signal."""
    if trainer.ranks.is_main:
        name, step = signal.Signals(trainer.stop_signal).name, trainer.state.step
        command = f"python train.py resume={as_argument(run)}"
        print(f"stopped by {name} after step {step}. To continue: {command}", file=sys.stderr)
    sys.exit(128 + trainer.stop_signal)
