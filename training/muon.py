"""Muon over stacks of matrices: `torch.optim.Muon`'s update, faster where matrices are many.

PyTorch's class orthogonalises the matrices one by one; here all of one shape are one stack, which
for a small model takes a fraction of the time. State, settings and results are those of the parent
class, to the rounding of bfloat16.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


class Muon(torch.optim.Muon):
    """Muon (Jordan et al. 2024) with Nesterov momentum and decoupled weight decay.

    Every matrix, whatever its shape, moves by an update of AdamW's usual size (Liu et al. 2025,
    "Muon is Scalable for LLM Training", equation 4).
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. `closure` is not supported."""
        if closure is not None:
            raise ValueError("closure: is not supported; call the model before")
        for group in self.param_groups:
            parameters = [each for each in group["params"] if each.grad is not None]
            stacks: defaultdict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for parameter in parameters:
                state = self.state[parameter]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                average = state["momentum_buffer"]
                average.lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(average, group["momentum"])
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                if update.shape[0] > update.shape[1]:
                    # Orthogonalised lying down: the products below are then the smaller ones.
                    update, parameter = update.mT, parameter.mT
                stacks[update.shape[0], update.shape[1]].append((parameter, update))
            for (_, columns), pairs in stacks.items():
                updates = orthogonalise(
                    torch.stack([update for _, update in pairs]),
                    group["ns_coefficients"],
                    group["ns_steps"],
                    group["eps"],
                )
                for (parameter, _), update in zip(pairs, updates, strict=True):
                    parameter.add_(update, alpha=-group["lr"] * 0.2 * math.sqrt(columns))


def orthogonalise(
    matrices: Float[Tensor, "stack rows columns"],
    coefficients: tuple[float, float, float],
    steps: int,
    eps: float,
) -> Float[Tensor, "stack rows columns"]:
    """For each matrix U S V^T of rows <= columns about U V^T, in bfloat16.

    Newton-Schulz iterations of X <- a X + (b A + c A^2) X with A = X X^T (Jordan et al. 2024,
    "Muon: An optimizer for hidden layers"), after scaling to a Frobenius norm of one.
    """
    a, b, c = coefficients
    x = matrices.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x
