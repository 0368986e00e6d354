"""The loss of the next token, from logits or from what they are computed from.

Promises: nats, computed in float32 whatever the dtype of the logits. Except in compiled code, the
logits of a large batch are not in memory as a whole: with a vocabulary of 50,000 tokens, they would
be most of what a training step needs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling

from common.errors import check_choice

PART_BYTES = 1 << 28  # of float32 logits; the loss of more is computed in parts
IGNORED = -100  # the default `ignore_index` of PyTorch's cross entropy


def cross_entropy(
    logits: Float[Tensor, "*axes vocab"],
    targets: Int[Tensor, "*axes"],
    reduction: str = "mean",
) -> Float[Tensor, ""]:
    """The "mean" of the loss in nats per token, or its "sum" in nats. Targets of -100 are not
    scored."""
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), reduction=reduction)


def softcap(logits: Float[Tensor, "*axes"], cap: float | None) -> Float[Tensor, "*axes"]:
    """cap tanh(logits / cap), between -cap and cap (Gemma 2, Riviere et al. 2024, section 2); None:
    the logits themselves."""
    return logits if cap is None else cap * torch.tanh(logits / cap)


def linear_cross_entropy(
    hidden: Float[Tensor, "batch query d_model"],
    weight: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, "batch query"],
    reduction: str = "mean",
    cap: float | None = None,
) -> Float[Tensor, ""]:
    """`cross_entropy` of the logits `softcap(hidden @ weight.T, cap)`.

    Of many logits, it is computed in parts of `PART_BYTES`, together with its gradient, which
    cannot be differentiated again or by torch.func. Compiled code has no parts: the compiler keeps
    all logits, in the dtype of the product, and fuses the rest of the loss.

    `torch.nn.functional.linear_cross_entropy` also has parts. In bfloat16 it rounds the loss to 8
    bits, and takes three times as long on CPUs.

    Raises ValueError for another reduction, and for targets that are not int64 or have another
    shape than the tokens.
    """
    check_choice("reduction", reduction, ("mean", "sum"))
    if targets.dtype != torch.int64 or targets.shape != hidden.shape[:-1]:
        raise ValueError(
            f"targets: are {targets.dtype} of shape {tuple(targets.shape)}; give torch.int64 of "
            f"shape {tuple(hidden.shape[:-1])}"
        )
    rows = max(1, PART_BYTES // (4 * len(weight)))
    if is_compiling() or targets.numel() <= rows:
        loss = cross_entropy(softcap(F.linear(hidden, weight), cap), targets, "sum")
    else:
        tokens = hidden.flatten(0, 1), weight, targets.flatten()
        loss = _InParts.apply(*tokens, cap, rows, torch.is_grad_enabled())
    return loss if reduction == "sum" else loss / (targets != IGNORED).sum()


class _InParts(torch.autograd.Function):
    """The summed loss of all tokens, from `rows` of them at a time, and its gradients, which
    autograd computes for each part. Sums over parts are in float32.

    The gradients are computed in the forward pass, while the logits of a part are there.
    `torch.utils.checkpoint` would be shorter, but computes the logits again in the backward pass:
    four matrix products instead of three, which takes 6% longer for GPT-2 (benchmarks/NOTES.md).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "token d_model"],
        weight: Float[Tensor, "vocab d_model"],
        targets: Int[Tensor, " token"],
        cap: float | None,
        rows: int,
        has_gradients: bool,
    ) -> Float[Tensor, ""]:
        weight = weight.detach().requires_grad_(has_gradients)
        of_hidden = []
        of_weight = torch.zeros_like(weight, dtype=torch.float32, requires_grad=False)
        loss = torch.zeros((), device=hidden.device)
        for x, target in zip(hidden.split(rows), targets.split(rows), strict=True):
            x = x.detach().requires_grad_(has_gradients)
            with torch.set_grad_enabled(has_gradients):
                part = cross_entropy(softcap(F.linear(x, weight), cap), target, "sum")
            loss += part.detach()
            if has_gradients:
                of_x, of_w = torch.autograd.grad(part, (x, weight))
                of_hidden.append(of_x)
                of_weight += of_w
        if has_gradients:
            ctx.save_for_backward(torch.cat(of_hidden), of_weight.to(weight.dtype))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Float[Tensor, ""]) -> tuple[Tensor | None, ...]:
        of_hidden, of_weight = (gradient * scale for gradient in ctx.saved_tensors)
        return of_hidden, of_weight, None, None, None, None
