"""The norms of the model.

Promises: the values and gradients of PyTorch's own norms, to float tolerance.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.compiler import is_compiling

from model.config import ModelConfig


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + eps) * gain over the last axis (Zhang & Sennrich 2019, eq. 4), in the
    dtype of its input.

    Under autocast the queries and keys are bfloat16 and the gain is float32; PyTorch's own module
    then warns and does not use its fused kernel. On a CPU it has none: see `_FusedRMSNorm`.
    """

    def forward(self, x: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes width"]:
        assert self.eps is not None
        if x.device.type == "cpu" and x.dtype != torch.float64 and not is_compiling():
            inputs = x.float(), self.weight.float(), self.eps
            if torch.is_grad_enabled():
                return _FusedRMSNorm.apply(*inputs)[0].to(x.dtype)
            return _normalise(*inputs)[0].to(x.dtype)
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def _normalise(
    x: Float[Tensor, "*axes width"], weight: Float[Tensor, " width"], eps: float
) -> tuple[Float[Tensor, "*axes width"], Float[Tensor, "*axes 1"]]:
    """The result, and 1 / sqrt(mean(x^2) + eps) of each row."""
    rstd = torch.linalg.vector_norm(x, dim=-1, keepdim=True).pow_(2)
    rstd.div_(x.shape[-1]).add_(eps).rsqrt_()
    return (x * rstd).mul_(weight), rstd


class _FusedRMSNorm(torch.autograd.Function):
    """An RMSNorm whose backward pass is LayerNorm's kernel, which CPUs have.

    With a mean of zero, the gradient of LayerNorm differs from that of RMSNorm only in a term that
    stands for the mean's dependence on x, -rstd mean(gain dy), which is added back. PyTorch's
    RMSNorm on a CPU is eight operators forward and more backward.
    """

    generate_vmap_rule = True  # for torch.func

    @staticmethod
    def forward(
        x: Float[Tensor, "*axes width"], weight: Float[Tensor, " width"], eps: float
    ) -> tuple[Float[Tensor, "*axes width"], Float[Tensor, "*axes 1"]]:
        return _normalise(x, weight, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Any) -> None:
        x, weight, ctx.eps = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, weight, output[1])

    @staticmethod
    def backward(
        ctx: Any, grad: Float[Tensor, "*axes width"], _: Tensor
    ) -> tuple[Float[Tensor, "*axes width"] | None, Float[Tensor, " width"] | None, None]:
        x, weight, rstd = ctx.saved_tensors
        width = x.shape[-1]
        if torch.is_grad_enabled():  # for gradients of gradients, by PyTorch's own formula
            y = F.rms_norm(x, (width,), weight, ctx.eps)
            wanted = [each for each in (x, weight) if each.requires_grad]
            found = dict(
                zip(wanted, torch.autograd.grad(y, wanted, grad, create_graph=True), strict=True)
            )
            return found.get(x), found.get(weight), None
        grad_x, grad_weight, _ = torch.ops.aten.native_layer_norm_backward(
            grad, x, [width], torch.zeros_like(rstd), rstd, weight, None, [True, True, False]
        )
        mean = (grad @ weight).unsqueeze_(-1).mul_(rstd).div_(width)
        return grad_x.add_(mean), grad_weight, None


def _layer_norm(config: ModelConfig) -> nn.Module:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=config.bias)


def _rms_norm(config: ModelConfig) -> nn.Module:
    return RMSNorm(config.d_model, eps=config.norm_eps)


# The norm over the residual stream.
NORMS = {"layernorm": _layer_norm, "rmsnorm": _rms_norm}
