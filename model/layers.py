"""What blocks are built of: norms, positions, MLPs and dropout, and the tables of their choices.

Promises: every position is called as `position(x, start)`, where the first token of `x` is at
position `start` of the window (not 0 when earlier tokens are cached), and keeps the shape of `x`.
Dropout has the distribution of PyTorch's. On CPUs it draws other elements than PyTorch does, and
rounds the probability to a multiple of 1/65536.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.compiler import is_compiling

LEVELS = 1 << 16  # of a random 16-bit integer


@runtime_checkable
class Sizes(Protocol):
    """What the parts read of a `ModelConfig`, which is built of their tables."""

    d_model: int
    d_head: int
    d_mlp: int
    context_length: int
    bias: bool
    dropout: float
    norm_eps: float
    rope_theta: float


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + eps) * gain over the last axis (Zhang & Sennrich 2019, eq. 4), in the
    dtype of its input.

    Under autocast the queries and keys are bfloat16 and the gain is float32; PyTorch's own module
    then warns and does not use its fused kernel.
    """

    def forward(self, x: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes width"]:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


# The norm over the residual stream.
NORMS: dict[str, Callable[[Sizes], nn.Module]] = {
    "layernorm": lambda config: nn.LayerNorm(config.d_model, config.norm_eps, bias=config.bias),
    "rmsnorm": lambda config: RMSNorm(config.d_model, config.norm_eps),
}


class NoPosition(nn.Module):
    """Returns `x` unchanged: used where the other kind of position acts."""

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
        cos, sin = self._tables()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def _tables(self, device: torch.device | str | None = None) -> list[Tensor]:
        """The cosine of every component's angle, and its sine, negative in the first half."""
        exponents = torch.arange(0, self.d_head, 2, dtype=torch.float32, device=device)
        places = torch.arange(self.context_length, dtype=torch.float32, device=device)
        angle = torch.outer(places, self.theta ** (-exponents / self.d_head))
        cos, sin = angle.cos(), angle.sin()
        return [torch.cat((cos, cos), dim=1), torch.cat((-sin, sin), dim=1)]

    def _load_from_state_dict(self, *given: Any) -> None:
        """The tables, which no state has: a model that was made on the meta device has none yet."""
        super()._load_from_state_dict(*given)
        device = "cpu" if self.cos.is_meta else self.cos.device
        self.cos, self.sin = (table.to(device, self.cos.dtype) for table in self._tables("cpu"))

    def forward(
        self, x: Float[Tensor, "batch head token d_head"], start: int
    ) -> Float[Tensor, "batch head token d_head"]:
        end = start + x.shape[2]
        cos, sin = self.cos[start:end], self.sin[start:end]
        # (a, b) becomes (a cos - b sin, b cos + a sin); under autocast, in the tables' float32.
        return torch.addcmul(x * cos, x.roll(self.d_head // 2, dims=-1), sin).to(x.dtype)


class Position(NamedTuple):
    """What a scheme does to the embeddings, and to the queries and keys of each head."""

    embeddings: Callable[[Sizes], nn.Module]
    heads: Callable[[Sizes], nn.Module]


POSITIONS = {
    "learned": Position(
        lambda config: LearnedPosition(config.context_length, config.d_model),
        lambda config: NoPosition(),
    ),
    "rotary": Position(
        lambda config: NoPosition(),
        lambda config: Rotary(config.context_length, config.d_head, config.rope_theta),
    ),
}


class Dropout(nn.Dropout):
    """Zero with probability p, in training, and otherwise x / (1 - p) (Srivastava et al. 2014).

    On most CPUs, PyTorch draws one random number of 64 bits per element, one after the other, which
    in a small model takes longer than attention. Here such a number decides on four elements.
    """

    def __init__(self, p: float) -> None:
        super().__init__(p)

    def forward(self, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        dropped = round(self.p * LEVELS)
        is_plain = not self.training or dropped in (0, LEVELS)
        if is_plain or x.device.type != "cpu" or is_compiling():
            return super().forward(x)
        numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
        levels = numbers.view(torch.int16)[: x.numel()].view(x.shape)
        keep = (levels >= dropped - LEVELS // 2).to(x.dtype)
        return x * keep.mul_(LEVELS / (LEVELS - dropped))


class PlainMLP(nn.Module):
    """down(activation(up(x)))."""

    activation: Callable[[Tensor], Tensor]

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_mlp, bias=config.bias)
        self.down = nn.Linear(config.d_mlp, config.d_model, bias=config.bias)
        self.residual_dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch query d_model"]
    ) -> Float[Tensor, "batch query d_model"]:
        return self.residual_dropout(self.down(self.activation(self.up(x))))


class GeluMLP(PlainMLP):
    """With the tanh approximation of GELU, as in GPT-2."""

    activation = staticmethod(partial(F.gelu, approximate="tanh"))


class SquaredReluMLP(PlainMLP):
    """With relu(x)^2 (So et al. 2021, "Primer", section 4.2)."""

    activation = staticmethod(lambda x: F.relu(x).square())


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020, eq. 6)."""

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.d_mlp, bias=config.bias)
        self.up = nn.Linear(config.d_model, config.d_mlp, bias=config.bias)
        self.down = nn.Linear(config.d_mlp, config.d_model, bias=config.bias)
        self.residual_dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch query d_model"]
    ) -> Float[Tensor, "batch query d_model"]:
        return self.residual_dropout(self.down(F.silu(self.gate(x)) * self.up(x)))


MLPS = {"gelu": GeluMLP, "relu2": SquaredReluMLP, "swiglu": SwiGLU}
