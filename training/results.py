"""The loss and the gradient norm of each step. They stay on the device until they are read, so that
the host need not wait for a GPU at every step.

Promises: reading counts all skipped steps, in order.
"""

from __future__ import annotations

import logging
import math

import torch
from jaxtyping import Float
from torch import Tensor

from training.progress import Progress

log = logging.getLogger("training")
MAX_UNREAD = 100


class Results:
    """The results of the steps of `progress`. `loss` (nats per token) and `grad_norm` are those of
    the newest step that was read."""

    def __init__(self, progress: Progress, max_bad_steps: int) -> None:
        self.progress, self.max_bad_steps = progress, max_bad_steps
        self.loss = self.grad_norm = math.nan
        self._unread: list[Float[Tensor, " 2"]] = []

    def add(self, result: Float[Tensor, " 2"]) -> None:
        """Add the loss and gradient norm of the step that `progress` has just counted."""
        self._unread.append(result)

    @property
    def are_due(self) -> bool:
        """Whether so many results are unread that `max_bad_steps` may be reached."""
        most = min(MAX_UNREAD, self.max_bad_steps - self.progress.bad_in_a_row)
        return len(self._unread) >= most

    def read(self) -> None:
        """Wait for the results of all steps, and count the steps that were skipped, because a
        result was not finite."""
        if not self._unread:
            return
        progress = self.progress
        results, self._unread = torch.stack(self._unread).tolist(), []
        for step, result in enumerate(results, progress.step - len(results) + 1):
            self.loss, self.grad_norm = result
            if math.isfinite(self.loss + self.grad_norm):
                progress.bad_in_a_row = 0
            else:
                progress.bad_steps += 1
                progress.bad_in_a_row += 1
                log.warning("step %d skipped: %s", step, self.newest)

    @property
    def are_too_bad(self) -> bool:
        """Whether `max_bad_steps` in a row were skipped."""
        return self.progress.bad_in_a_row >= self.max_bad_steps

    @property
    def newest(self) -> str:
        """The results of the newest step that was read, for messages."""
        return f"loss {self.loss}, gradient norm {self.grad_norm}"
