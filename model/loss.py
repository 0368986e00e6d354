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

from errors import check_choice

PART_BYTES = 1 << 28  # of float32 logits; the loss of more is computed in parts
UNSCORED = -100  # as a target


def cross_entropy(
    logits: Float[Tensor, "batch query vocab"],
    targets: Int[Tensor, "batch query"],
    reduction: str = "mean",
) -> Float[Tensor, ""]:
    """The "mean" of the loss in nats per token, or its "sum" in nats. Targets of -100 are not
    scored."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction=reduction)


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

    The loss of many logits is computed in parts of `PART_BYTES`, together with its gradient, which
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
    dtype = hidden.dtype
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
    rows = max(1, PART_BYTES // (4 * len(weight)))
    if is_compiling() or targets.numel() <= rows:
        return cross_entropy(softcap(F.linear(hidden, weight), cap), targets, reduction)
    has_gradients = torch.is_grad_enabled()
    total = _LossInParts.apply(
        hidden.flatten(0, 1), weight, targets.flatten(), rows, dtype, has_gradients, cap
    )
    return total if reduction == "sum" else total / (targets != UNSCORED).sum()


class _LossInParts(torch.autograd.Function):
    """The sum of the loss over all tokens, and its gradients, from logits of `rows` tokens at a
    time. Products are in `dtype`, and their sums over parts in float32."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "token d_model"],
        weight: Float[Tensor, "vocab d_model"],
        targets: Int[Tensor, " token"],
        rows: int,
        dtype: torch.dtype,
        has_gradients: bool,
        cap: float | None,
    ) -> Float[Tensor, ""]:
        cast = weight.to(dtype)
        total = torch.zeros((), device=hidden.device)
        if has_gradients:
            of_hidden = torch.empty_like(hidden)
            of_weight = torch.zeros_like(weight, dtype=torch.float32)
            of_logits = cast.new_empty(rows, len(cast))
        for start in range(0, len(targets), rows):
            part = slice(start, start + rows)
            x, target = hidden[part].to(dtype), targets[part, None]
            scored = target != UNSCORED
            target = target.where(scored, 0)
            logits = softcap(F.linear(x, cast), cap)
            log_p = logits.log_softmax(-1, dtype=torch.float32)
            total -= log_p.gather(1, target).where(scored, 0).sum()
            if has_gradients:  # of the logits: the probabilities, minus 1 for the target
                log_p.exp_().scatter_add_(1, target, log_p.new_full(target.shape, -1))
                if cap is not None:
                    log_p *= 1 - (logits / cap).square()  # the derivative of tanh
                error = of_logits[: len(x)]
                torch.mul(log_p, scored, out=error)
                of_hidden[part] = error @ cast
                of_weight += error.T @ x
        if has_gradients:
            ctx.save_for_backward(of_hidden, of_weight.to(weight.dtype))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Float[Tensor, ""]) -> tuple[Tensor | None, ...]:
        return *(gradient * scale for gradient in ctx.saved_tensors), None, None, None, None, None
