"""The norms of the model."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from model.config import ModelConfig


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + eps) * gain over the last axis (Zhang & Sennrich 2019, eq. 4), in the
    dtype of its input.

    Under autocast the queries and keys are bfloat16 and the gain is float32; PyTorch's own module
    then warns and does not use its fused kernel.
    """

    def forward(self, x: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes width"]:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def _layer_norm(config: ModelConfig) -> nn.Module:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=config.bias)


def _rms_norm(config: ModelConfig) -> nn.Module:
    return RMSNorm(config.d_model, eps=config.norm_eps)


# The norm over the residual stream.
NORMS = {"layernorm": _layer_norm, "rmsnorm": _rms_norm}
