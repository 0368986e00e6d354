"""One layer of the transformer: attention, then an MLP, each added to the residual stream.

Promises: pre-norm blocks only (a norm acts on the input of a branch, never on the stream itself).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from common.errors import check_range
from model.attention import CausalSelfAttention
from model.cache import LayerCache
from model.config import ModelConfig
from model.dropout import Dropout
from model.norm import NORMS


class Block(nn.Module):
    """x + attention(norm(x)), and then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = NORMS[config.norm](config)
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = NORMS[config.norm](config)
        self.mlp = MLPS[config.mlp](config)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        x = x + self.attention(self.attention_norm(x), cache)
        return x + self.mlp(self.mlp_norm(x))


def blocks_of(model: nn.Module) -> list[Block]:
    """The blocks of a model, in the order of its layers."""
    return [module for module in model.modules() if isinstance(module, Block)]


def block_of(model: nn.Module, layer: int, head: int = 0) -> Block:
    """The block of a layer. Raises ValueError for a layer or head that the model does not have."""
    blocks = blocks_of(model)
    check_range("layer", layer, 0, len(blocks) - 1)
    attention = blocks[layer].attention
    check_range("head", head, 0, attention.query.out_features // attention.d_head - 1)
    return blocks[layer]


class PlainMLP(nn.Module):
    """down(activation(up(x)))."""

    activation: Callable[[Tensor], Tensor]

    def __init__(self, config: ModelConfig) -> None:
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


MLPS = {"gelu": GeluMLP, "relu2": SquaredReluMLP, "swiglu": SwiGLU}
