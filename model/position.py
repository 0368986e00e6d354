"""How a model encodes the position of a token in the window: learned vectors or rotary angles.

Promises: every class here is called as `position(x, start)`, where the first token of `x` is at
position `start` of the window (not 0 when earlier tokens are cached), and keeps the shape of `x`.
If there is one token, `start` can be a tensor, whose value the host does not know.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from model.config import ModelConfig

Start = int | Int64[Tensor, " one"]


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
        self.context_length, self.d_head, self.theta = context_length, d_head, theta
        cos, sin = self.tables()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def tables(self) -> tuple[Float[Tensor, "token d_head"], Float[Tensor, "token d_head"]]:
        """The cosine of every component's angle, and its sine, negative in the first half."""
        d_head = self.d_head
        frequency = self.theta ** (-torch.arange(0, d_head, 2, dtype=torch.float32) / d_head)
        angle = torch.outer(torch.arange(self.context_length, dtype=torch.float32), frequency)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat((cos, cos), dim=1), torch.cat((-sin, sin), dim=1)

    def forward(
        self, x: Float[Tensor, "batch head token d_head"], start: Start
    ) -> Float[Tensor, "batch head token d_head"]:
        cos = _rows(self.cos, start, x.shape[2])
        sin = _rows(self.sin, start, x.shape[2])
        # (a, b) becomes (a cos - b sin, b cos + a sin); under autocast, in the tables' float32.
        return torch.addcmul(x * cos, x.roll(self.d_head // 2, dims=-1), sin).to(x.dtype)


def _rows(table: Float[Tensor, "row width"], start: Start, n: int) -> Float[Tensor, "n width"]:
    if isinstance(start, Tensor):
        return table.index_select(0, start)
    return table[start : start + n]


def build_position(config: ModelConfig, acts_on: str) -> nn.Module:
    """The position module for `acts_on`, "stream" (the embeddings) or "heads" (queries and keys).

    Raises ValueError if `config.position` has no branch here.
    """
    if config.position == "learned":
        if acts_on == "stream":
            return LearnedPosition(config.context_length, config.d_model)
        return NoPosition()
    if config.position == "rotary":
        if acts_on == "heads":
            return Rotary(config.context_length, config.d_head, config.rope_theta)
        return NoPosition()
    raise ValueError(f"position: {config.position!r} is not implemented")
