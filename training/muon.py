"""Muon: momentum SGD whose update matrices are orthogonalised before they are applied.

Matrices of equal shape are orthogonalised as one stack. For a small model this takes half the time
of `torch.optim.Muon`, which processes one matrix after the other and always in bfloat16; here only
where the device computes it fast.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

# Of the quintic polynomial that is iterated to move singular values towards one (Jordan et al.
# 2024, "Muon: An optimizer for hidden layers").
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class Muon:
    """Muon (Jordan et al. 2024) with Nesterov momentum and decoupled weight decay.

    The update of every matrix, whatever its shape, has the usual RMS of an AdamW update (Liu et al.
    2025, "Muon is Scalable for LLM Training", equation 4).

    dtype: in which matrices are orthogonalised: bfloat16 or float32. (The squares of a gradient can
        be too small for float16.)
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        lr: float,
        weight_decay: float,
        momentum: float,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.dtype = dtype
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
        for parameter in self.state:
            if parameter.grad is not None:
                stacks[tuple(sorted(parameter.shape))].append(parameter)
        for shape, parameters in stacks.items():
            wide = [_wide(parameter.detach()) for parameter in parameters]
            momenta = [_wide(self.state[each]["momentum_buffer"]) for each in parameters]
            gradients = [_wide(each.grad) for each in parameters if each.grad is not None]
            # Nesterov momentum. Without finite gradients, the average stays what it is.
            average, gradient = torch.stack(momenta), torch.stack(gradients)
            gradient = gradient.where(is_finite, average)
            average = average.lerp(gradient, 1 - self.momentum)
            torch._foreach_copy_(momenta, [*average])
            update = gradient.lerp(average, self.momentum).to(self.dtype)
            full = orthogonalise(update).float() * is_finite
            torch._foreach_mul_(wide, decay)
            torch._foreach_add_(wide, [*full], alpha=-lr * 0.2 * math.sqrt(max(shape)))


def _wide(matrix: Float[Tensor, "m n"]) -> Float[Tensor, "rows columns"]:
    """The matrix, or its transpose if that has fewer rows; a view."""
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT


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
