"""How a model knows where in the window a token stands: learned vectors or rotary angles.

Promises: every class here is called as `position(x, start)`, where the first token of `x` stands
at position `start` of the window (not 0 when earlier tokens are cached), and keeps x's shape.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class NoPosition(nn.Module):
    """Leaves `x` as it is: stands where the other kind of position acts."""

    def forward(self, x: Tensor, start: int) -> Tensor:
        return x


class LearnedPosition(nn.Module):
    """Adds one trained vector per position to the residual stream (GPT-2)."""

    def __init__(self, context_length: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(context_length, d_model))

    def forward(
        self, x: Float[Tensor, "batch token d_model"], start: int
    ) -> Float[Tensor, "batch token d_model"]:
        return x + self.weight[start : start + x.shape[1]]


class Rotary(nn.Module):
    """Turns pairs of a head's components by an angle that grows with the position.

    Component i of the first half is paired with component i of the second half, and the pair at
    position p is turned by p * theta^(-2i / d_head), so that a query-key product depends only on
    their distance (Su et al. 2021, eq. 34; halves instead of neighbours as in GPT-NeoX and Qwen3).
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, context_length: int, d_head: int, theta: float) -> None:
        super().__init__()
        frequency = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float32) / d_head)
        angle = torch.outer(torch.arange(context_length, dtype=torch.float32), frequency)
        self.register_buffer("cos", torch.cat((angle.cos(), angle.cos()), 1), persistent=False)
        self.register_buffer("sin", torch.cat((-angle.sin(), angle.sin()), 1), persistent=False)

    def forward(
        self, x: Float[Tensor, "batch head token d_head"], start: int
    ) -> Float[Tensor, "batch head token d_head"]:
        cos = self.cos[start : start + x.shape[2]]
        sin = self.sin[start : start + x.shape[2]]
        # (a, b) turns to (a cos - b sin, b cos + a sin): the roll swaps a and b, and the minus
        # sign is in the table of sines.
        return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin
