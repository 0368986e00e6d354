"""The time that a run spends on training, and the measurements of its steps."""

from __future__ import annotations

import math
import time

from jaxtyping import Int
from torch import Tensor

from data.batches import UNSCORED
from training.callback import Callback, StepMetrics
from training.trainer import Trainer


class Metrics(Callback):
    """Counts the seconds of training, without evaluations, and measures every `log_every` steps.

    token_bytes: the number of bytes of each token.
    """

    def __init__(self, token_bytes: Int[Tensor, " vocab"]) -> None:
        self.token_bytes = token_bytes

    def on_start(self, trainer: Trainer) -> None:
        now = time.perf_counter() - trainer.seconds_paused
        self.began = now - trainer.state.seconds
        self.measured_at, self.tokens = now, trainer.state.tokens

    def on_step(self, trainer: Trainer) -> None:
        state = trainer.state
        is_due = trainer.is_due(trainer.config.log_every) and not state.bad_in_a_row
        # A number that is read is one that the device has computed.
        measured = (trainer.train_loss, trainer.grad_norm)
        loss, grad_norm = (x.item() if is_due else 0.0 for x in measured)
        now = time.perf_counter() - trainer.seconds_paused
        state.seconds = now - self.began
        if not is_due:
            return
        rate = (state.tokens - self.tokens) / (now - self.measured_at)
        self.measured_at, self.tokens = now, state.tokens
        scored = trainer.targets[trainer.targets != UNSCORED]
        n_bytes = int(self.token_bytes[scored].sum())
        bpb = loss * scored.numel() / math.log(2) / max(n_bytes, 1)  # of end tokens only
        metrics = StepMetrics(loss, bpb, trainer.lr, grad_norm, state.tokens, rate)
        trainer.call("on_metrics", metrics)
