"""Muon: momentum SGD whose update matrices are orthogonalised before they are applied.

Matrices of equal shape are orthogonalised as one stack. For a small model this takes half the time
of `torch.optim.Muon`, which processes one matrix after the other and always in bfloat16; here only
where a device does not emulate it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from training.device import fast_precision

# Of the quintic polynomial that is iterated to move singular values towards one (Jordan et al.
# 2024, "Muon: An optimizer for hidden layers").
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class Muon:
    """Muon (Jordan et al. 2024) with Nesterov momentum and decoupled weight decay.

    The update of every matrix, whatever its shape, has the usual RMS of an AdamW update (Liu et al.
    2025, "Muon is Scalable for LLM Training", equation 4).
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float, momentum: float
    ) -> None:
        self.lr, self.weight_decay, self.momentum = lr, weight_decay, momentum
        self.state = {
            parameter: {"momentum_buffer": torch.zeros_like(parameter)} for parameter in parameters
        }

    @torch.no_grad()
    def step(self, scale: float, is_finite: Bool[Tensor, ""]) -> None:
        """Update every parameter that has a gradient, at `scale` times the learning rate; change
        nothing unless `is_finite`."""
        lr = self.lr * scale
        decay = torch.where(is_finite, 1 - lr * self.weight_decay, 1.0)
        stacks: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        moving = [parameter for parameter in self.state if parameter.grad is not None]
        for parameter in sorted(moving, key=lambda parameter: parameter.shape, reverse=True):
            stacks[tuple(sorted(parameter.shape))].append(parameter)
        for shape, parameters in stacks.items():
            updates = [self._update(parameter, is_finite) for parameter in parameters]
            wide = [update if update.shape == shape else update.mT for update in updates]
            for parameter, result in zip(parameters, orthogonalise(torch.stack(wide)), strict=True):
                full = result if parameter.shape == shape else result.mT
                parameter.mul_(decay)
                parameter.add_(full * is_finite, alpha=-lr * 0.2 * math.sqrt(max(shape)))

    def _update(
        self, parameter: nn.Parameter, is_finite: Bool[Tensor, ""]
    ) -> Float[Tensor, "rows columns"]:
        """The gradient with Nesterov momentum, in the dtype in which it is orthogonalised, whatever
        `trainer.precision` is: bfloat16 if the device computes it fast, else float32. (The squares
        of a gradient can be too small for float16.)"""
        assert parameter.grad is not None
        average = self.state[parameter]["momentum_buffer"]
        # Without finite gradients, the average stays what it is.
        gradient = parameter.grad.where(is_finite, average)
        average.lerp_(gradient, 1 - self.momentum)
        is_fast = fast_precision(parameter.device).dtype == torch.bfloat16
        update = gradient.lerp(average, self.momentum)
        return update.to(torch.bfloat16 if is_fast else torch.float32)


def orthogonalise(
    matrices: Float[Tensor, "stack rows columns"],
) -> Float[Tensor, "stack rows columns"]:
    """For each matrix U S V^T with rows <= columns, approximately U V^T.

    Newton-Schulz iterations of X <- a X + (b A + c A^2) X with A = X X^T, after scaling to a
    Frobenius norm of one.
    """
    a, b, c = COEFFICIENTS
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x
