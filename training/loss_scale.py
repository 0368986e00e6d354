"""The loss scale of float16, in which small gradients would vanish without one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from store.checkpoint import TrainState

FIRST, GROWTH_STEPS = 2.0**16, 2000


class LossScaler:
    """Dynamic loss scaling (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2).

    The loss is multiplied by the scale before the backward pass, and the gradients are divided by
    it. A step whose gradients overflow is skipped and halves the scale, and 2,000 steps without one
    double it. As powers of two, the scales round nothing. The scale is part of the `state`, so that
    a resumed run continues with it. Every other dtype has none.
    """

    def __init__(self, state: TrainState, dtype: torch.dtype) -> None:
        self.state = state
        if dtype != torch.float16:
            state.loss_scale, state.scaled_steps = None, 0
        elif state.loss_scale is None:
            state.loss_scale = FIRST

    def scale(self, loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
        return loss if self.state.loss_scale is None else loss * self.state.loss_scale

    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divide the gradients by the scale."""
        if self.state.loss_scale is None:
            return
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.div_(self.state.loss_scale)

    def update(self, is_finite: Tensor) -> None:
        """Adapt the scale to the step, for which the host waits for the device if there is one."""
        state = self.state
        if state.loss_scale is None:
            return
        if not is_finite:
            state.loss_scale, state.scaled_steps = max(state.loss_scale / 2, 1.0), 0
            return
        state.scaled_steps += 1
        if state.scaled_steps == GROWTH_STEPS:
            state.loss_scale, state.scaled_steps = state.loss_scale * 2, 0
