"""How a model encodes the position of a token in the window: learned vectors or rotary angles.

Promises: every class here is called as `position(x, start)`, where the first token of `x` is at
position `start` of the window (not 0 when earlier tokens are cached), and keeps the shape of `x`.
The start of a single token can also be a tensor on its device, which the host then does not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from model.config import ModelConfig

Start = int | Int[Tensor, ""]


def _rows(
    table: Float[Tensor, "position width"], start: Start, count: int
) -> Float[Tensor, "token width"]:
    """Those of `count` tokens from `start` on."""
    if isinstance(start, Tensor):
        return table.index_select(0, start.view(1))
    return table[start : start + count]


class NoPosition(nn.Module):
    """Returns `x` unchanged: used where the other kind of position acts."""

    def forward(self, x: Tensor, start: Start) -> Tensor:
        return x


class LearnedPosition(nn.Module):
    """Adds one trained vector per position to the residual stream (GPT-2)."""

    def __init__(self, context_length: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(context_length, d_model))

    def forward(
        self, x: Float[Tensor, "batch token d_model"], start: Start
    ) -> Float[Tensor, "batch token d_model"]:
        return x + _rows(self.weight, start, x.shape[1])


class Rotary(nn.Module):
    """Rotates pairs of a head's components by an angle that grows with the position.

    Component i of the first half is paired with component i of the second half, and the pair at
    position p is rotated by p * theta^(-2i / d_head), so that a query-key product depends only on
    their distance (Su et al. 2021, eq. 34; halves instead of neighbours as in GPT-NeoX and Llama).
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, context_length: int, d_head: int, theta: float) -> None:
        super().__init__()
        self.d_head = d_head
        frequency = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float32) / d_head)
        angle = torch.outer(torch.arange(context_length, dtype=torch.float32), frequency)
        cos, sin = angle.cos(), angle.sin()
        # The cosine of every component's angle, and its sine, negative in the first half.
        self.register_buffer("cos", torch.cat((cos, cos), dim=1), persistent=False)
        self.register_buffer("sin", torch.cat((-sin, sin), dim=1), persistent=False)

    def forward(
        self, x: Float[Tensor, "batch head token d_head"], start: Start
    ) -> Float[Tensor, "batch head token d_head"]:
        cos, sin = (_rows(table, start, x.shape[2]) for table in (self.cos, self.sin))
        # (a, b) becomes (a cos - b sin, b cos + a sin); under autocast, in the tables' float32.
        return torch.addcmul(x * cos, x.roll(self.d_head // 2, dims=-1), sin).to(x.dtype)


def _learned(config: ModelConfig) -> nn.Module:
    return LearnedPosition(config.context_length, config.d_model)


def _rotary(config: ModelConfig) -> nn.Module:
    return Rotary(config.context_length, config.d_head, config.rope_theta)


def _none(config: ModelConfig) -> nn.Module:
    return NoPosition()


class Position(NamedTuple):
    """What a scheme does to the embeddings, and to the queries and keys of each head."""

    embeddings: Callable[[ModelConfig], nn.Module]
    heads: Callable[[ModelConfig], nn.Module]


POSITIONS = {"learned": Position(_learned, _none), "rotary": Position(_none, _rotary)}
