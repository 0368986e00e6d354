"""What happens when numbers stop being finite: steps are skipped, and a run that diverged ends."""

from __future__ import annotations

import logging
import math

import torch
from jaxtyping import Float
from torch import Tensor

from common.errors import UserError
from training.callback import Callback
from training.trainer import Trainer

log = logging.getLogger("training")
MAX_UNREAD = 100


class Diverged(UserError):  # noqa: N818
    """The loss, the gradients or the weights of a run are no longer finite."""


class NonFiniteGuard(Callback):
    """Counts the steps that were skipped, and ends the run after `max_bad_steps` in a row; in
    float16 only once the loss is not scaled any more: a step that overflows lowers its scale.

    The numbers of a step are read when something of it is due, or when the limit may be reached: on
    a GPU, the host does not wait at every step. `state` is up to date where a callback after this
    one measures, evaluates or saves.
    """

    def __init__(self) -> None:
        self._unread: list[Float[Tensor, " 2"]] = []

    def on_step(self, trainer: Trainer) -> None:
        config = trainer.config
        self._unread.append(torch.stack([trainer.train_loss, trainer.grad_norm]))
        limit = min(MAX_UNREAD, config.max_bad_steps - trainer.state.bad_in_a_row)
        is_due = any(map(trainer.is_due, (config.log_every, config.eval_every)))
        if is_due or len(self._unread) >= limit:
            self._read(trainer)

    def on_before_checkpoint(self, trainer: Trainer) -> None:
        self._read(trainer)

    def _read(self, trainer: Trainer) -> None:
        """Count the steps that were skipped; raise Diverged if too many were."""
        state, unread, self._unread = trainer.state, self._unread, []
        for step, numbers in enumerate(unread, state.step - len(unread) + 1):
            loss, grad_norm = numbers.tolist()
            if math.isfinite(loss + grad_norm):
                state.bad_in_a_row = 0
                continue
            state.bad_steps += 1
            state.bad_in_a_row += 1
            found = f"loss {loss}, gradient norm {grad_norm}"
            log.warning("step %d skipped: %s", step, found)
        is_scaled = state.loss_scale is not None and state.loss_scale > 1
        if unread and state.bad_in_a_row >= trainer.config.max_bad_steps and not is_scaled:
            n = state.bad_in_a_row
            steps = "1 step" if n == 1 else f"{n} consecutive steps"
            raise diverged(trainer, f"{found}, for {steps}")


def diverged(trainer: Trainer, reason: str) -> Diverged:
    """The exception to raise, which is also logged."""
    step = trainer.state.step
    log.error("diverged at step %d: %s", step, reason)
    return Diverged(
        f"optimizer.lr: training diverged at step {step}: {reason}. Saved checkpoints are finite. "
        "Lower optimizer.lr, raise optimizer.warmup_steps or lower trainer.max_grad_norm"
    )
