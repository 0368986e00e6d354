"""Muon: momentum whose every matrix is made orthogonal before it is a step.

Matrices of one shape are orthogonalised as one stack, which for a small model takes half the time
of one after the other, as `torch.optim.Muon` does it. The results are the same, to the rounding of
bfloat16.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from training.ranks import part_like, whole

# Of the polynomial that is iterated: they push singular values towards one as fast as a quintic can
# (Jordan et al. 2024, "Muon: An optimizer for hidden layers").
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class Muon:
    """Muon (Jordan et al. 2024) with Nesterov momentum and decoupled weight decay.

    Every matrix, whatever its shape, moves by an update of AdamW's usual size (Liu et al. 2025,
    "Muon is Scalable for LLM Training", equation 4).
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float, momentum: float
    ) -> None:
        self.lr, self.weight_decay, self.momentum = lr, weight_decay, momentum
        self.state = {each: {"momentum_buffer": torch.zeros_like(each)} for each in parameters}

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Update every parameter that has a gradient, at `scale` times the learning rate."""
        lr = self.lr * scale
        stacks: defaultdict[tuple[int, ...], list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
        for parameter, state in self.state.items():
            if parameter.grad is None:
                continue
            average = state["momentum_buffer"].lerp_(parameter.grad, 1 - self.momentum)
            update = whole(parameter.grad.lerp(average, self.momentum))
            parameter.mul_(1 - lr * self.weight_decay)
            if update.shape[0] > update.shape[1]:
                update = update.mT  # lying down, the products below are the smaller ones
            stacks[update.shape].append((parameter, update))
        for (_, columns), pairs in stacks.items():
            updates = orthogonalise(torch.stack([update for _, update in pairs]))
            for (parameter, _), update in zip(pairs, updates, strict=True):
                update = update if update.shape == parameter.shape else update.mT
                parameter.add_(part_like(update, parameter), alpha=-lr * 0.2 * math.sqrt(columns))


def orthogonalise(
    matrices: Float[Tensor, "stack rows columns"],
) -> Float[Tensor, "stack rows columns"]:
    """For each matrix U S V^T of rows <= columns about U V^T, in bfloat16.

    Newton-Schulz iterations of X <- a X + (b A + c A^2) X with A = X X^T, after scaling to a
    Frobenius norm of one.
    """
    a, b, c = COEFFICIENTS
    x = matrices.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x
