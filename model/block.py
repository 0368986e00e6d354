"""One layer of the transformer: attention, then an MLP, each added to the residual stream.

Promises: pre-norm blocks only (a norm acts on the input of a branch, never on the stream itself).
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from model.attention import CausalSelfAttention
from model.cache import AnyLayerCache
from model.config import ModelConfig
from model.dropout import Dropout
from model.norm import build_norm


class Block(nn.Module):
    """x + attention(norm(x)), and then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = build_norm(config)
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = build_norm(config)
        self.mlp = build_mlp(config)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        cache: AnyLayerCache | None = None,
        mask: Bool[Tensor, "_batch 1 query key"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        x = x + self.attention(self.attention_norm(x), cache, mask)
        return x + self.mlp(self.mlp_norm(x))


class GeluMLP(nn.Module):
    """down(gelu(up(x))), with the tanh approximation of GELU, as in GPT-2."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_mlp, bias=config.bias)
        self.down = nn.Linear(config.d_mlp, config.d_model, bias=config.bias)
        self.residual_dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch query d_model"]
    ) -> Float[Tensor, "batch query d_model"]:
        return self.residual_dropout(self.down(F.gelu(self.up(x), approximate="tanh")))


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020, eq. 6)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.d_mlp, bias=config.bias)
        self.up = nn.Linear(config.d_model, config.d_mlp, bias=config.bias)
        self.down = nn.Linear(config.d_mlp, config.d_model, bias=config.bias)
        self.residual_dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch query d_model"]
    ) -> Float[Tensor, "batch query d_model"]:
        return self.residual_dropout(self.down(F.silu(self.gate(x)) * self.up(x)))


def build_mlp(config: ModelConfig) -> nn.Module:
    """The MLP of a block. Raises ValueError if `config.mlp` has no branch here."""
    if config.mlp == "gelu":
        return GeluMLP(config)
    if config.mlp == "swiglu":
        return SwiGLU(config)
    raise ValueError(f"mlp: {config.mlp!r} is not implemented")
