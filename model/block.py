"""One layer of the transformer: attention, then an MLP, each added to the residual stream.

Promises: pre-norm blocks only (the norm acts on a branch's input, never on the stream itself).
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from model.attention import CausalSelfAttention
from model.cache import LayerCache
from model.config import ModelConfig
from model.gelu import gelu


class Block(nn.Module):
    """x + attention(norm(x)), and then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = build_norm(config)
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = build_norm(config)
        self.mlp = build_mlp(config)

    def forward(
        self, x: Float[Tensor, "batch query d_model"], cache: LayerCache | None = None
    ) -> Float[Tensor, "batch query d_model"]:
        x = x + self.attention(self.attention_norm(x), cache)
        return x + self.mlp(self.mlp_norm(x))


class GeluMLP(nn.Module):
    """down(gelu(up(x))), with the tanh form of gelu, as GPT-2."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.mlp_width, bias=config.bias)
        self.down = nn.Linear(config.mlp_width, config.d_model, bias=config.bias)
        self.residual_dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch query d_model"]
    ) -> Float[Tensor, "batch query d_model"]:
        return self.residual_dropout(self.down(gelu(self.up(x))))


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020, eq. 6)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.mlp_width, bias=config.bias)
        self.up = nn.Linear(config.d_model, config.mlp_width, bias=config.bias)
        self.down = nn.Linear(config.mlp_width, config.d_model, bias=config.bias)
        self.residual_dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch query d_model"]
    ) -> Float[Tensor, "batch query d_model"]:
        return self.residual_dropout(self.down(F.silu(self.gate(x)) * self.up(x)))


def build_norm(config: ModelConfig) -> nn.Module:
    """The norm over the residual stream that `config.norm` names."""
    if config.norm == "layernorm":
        return nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=config.bias)
    return nn.RMSNorm(config.d_model, eps=config.norm_eps)


def build_mlp(config: ModelConfig) -> nn.Module:
    """The MLP that `config.mlp` names."""
    return GeluMLP(config) if config.mlp == "gelu" else SwiGLU(config)
