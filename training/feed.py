"""Training batches on their way to the device.

Promises: the batch of every step that is asked for, in any order. Knows nothing of what a batch
contains.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.profiler import record_function

Batch = tuple[Tensor, Tensor]


class Feed:
    """Gives the batch of a step on `device`.

    A GPU works on what is queued while the host goes on. So the host can `prepare` the batch of the
    next step, before it waits for the results of this one. The copy from pinned memory is queued as
    well: it follows the step, and the host does not wait for it.
    """

    def __init__(self, batch: Callable[[int], Batch], device: torch.device) -> None:
        self._batch, self._device = batch, device
        self._prepared: dict[int, Batch] = {}

    def __call__(self, step: int) -> Batch:
        """The batch of `step`, which is read now unless it was prepared."""
        prepared = self._prepared.pop(step, None)
        return self._read(step) if prepared is None else prepared

    def prepare(self, step: int) -> None:
        """Read the batch of `step`, and queue its copy to the device."""
        self._prepared = {step: self._read(step)}

    def _read(self, step: int) -> Batch:
        with record_function("read batch"):
            inputs, targets = self._batch(step)
            return self._send(inputs), self._send(targets)

    def _send(self, part: Tensor) -> Tensor:
        if self._device.type != "cuda":
            return part.to(self._device)
        return part.pin_memory().to(self._device, non_blocking=True)
