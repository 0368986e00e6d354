"""The loss of the next token, from logits or from what they are computed from, and terms beside it.

Promises: nats, computed in float32 whatever the dtype of the logits. Except in compiled code, the
logits of a large batch are not in memory as a whole: with a vocabulary of 50,000 tokens, they would
be most of what a training step needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling

from common.errors import check_choice

PART_BYTES = 1 << 28  # of float32 logits; the loss of more is computed in parts
UNSCORED = -100  # as a target


def cross_entropy(
    logits: Float[Tensor, "*axes vocab"],
    targets: Int[Tensor, "*axes"],
    reduction: str = "mean",
) -> Float[Tensor, ""]:
    """The "mean" of the loss in nats per token, or its "sum" in nats. Targets of -100 are not
    scored."""
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), reduction=reduction)


def z_loss(
    logits: Float[Tensor, "*axes vocab"], targets: Int[Tensor, "*axes"], _soft_targets: object
) -> Float[Tensor, ""]:
    """The sum of log(Z)^2 over the scored tokens, where Z normalises the softmax: it keeps the
    logits from drifting (Chowdhery et al. 2022, PaLM, section 5)."""
    log_z = logits.float().logsumexp(-1)
    return log_z.square().where(targets != UNSCORED, 0).sum()


def distillation(
    logits: Float[Tensor, "*axes vocab"],
    targets: Int[Tensor, "*axes"],
    soft_targets: Float[Tensor, "*axes vocab"] | None,
) -> Float[Tensor, ""]:
    """The sum of the cross-entropy with a teacher's predictions over the scored tokens (Hinton et
    al. 2015, "Distilling the Knowledge in a Neural Network", section 2, at temperature 1)."""
    assert soft_targets is not None
    flat, soft = logits.flatten(0, -2).float(), soft_targets.flatten(0, -2)
    losses = F.cross_entropy(flat, soft, reduction="none")
    return losses.where(targets.flatten() != UNSCORED, 0).sum()


# What can be added to the loss in training, as the sum over the scored tokens: functions of logits,
# targets, and the soft targets if there are any. The weight of a term is the setting
# `trainer.<name>`.
LossTerm = Callable[[Tensor, Tensor, Tensor | None], Tensor]
LOSS_TERMS: dict[str, LossTerm] = {"z_loss": z_loss, "distillation": distillation}


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
    """`cross_entropy` of the logits `softcap(hidden @ weight.T, cap)`; as `linear_losses`."""
    return linear_losses(hidden, weight, targets, {}, reduction, cap)[0]


def linear_losses(
    hidden: Float[Tensor, "batch query d_model"],
    weight: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, "batch query"],
    terms: Mapping[str, float],
    reduction: str = "mean",
    cap: float | None = None,
    soft_targets: Float[Tensor, "batch query vocab"] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, " loss"]]:
    """What is minimised: the loss plus the `terms` (names of `LOSS_TERMS`) times their weights; and
    apart, without gradients, the loss and each of the terms.

    Of many logits, they are computed in parts of `PART_BYTES`, together with the gradient, which
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

    def sums(
        hidden: Tensor, weight: Tensor, targets: Tensor, soft_targets: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits = softcap(F.linear(hidden, weight), cap)
        minimised = cross_entropy(logits, targets, "sum")
        apart = [minimised.detach()]
        for name, factor in terms.items():
            term = LOSS_TERMS[name](logits, targets, soft_targets)
            minimised = minimised + factor * term
            apart.append(term.detach())
        return minimised, torch.stack(apart)

    rows = max(1, PART_BYTES // (4 * len(weight)))
    if is_compiling() or targets.numel() <= rows:
        minimised, apart = sums(hidden, weight, targets, soft_targets)
    else:
        flat, has_gradients = hidden.flatten(0, 1), torch.is_grad_enabled()
        soft = None if soft_targets is None else soft_targets.flatten(0, 1)
        minimised, apart = _InParts.apply(
            sums, flat, weight, targets.flatten(), soft, rows, has_gradients
        )
    count = 1 if reduction == "sum" else (targets != UNSCORED).sum()
    return minimised / count, apart / count


class _InParts(torch.autograd.Function):
    """The results of `sums` over all tokens, from `rows` of them at a time, and the gradients of
    the first result, which autograd computes for each part. Sums over parts are in float32."""

    @staticmethod
    def forward(
        ctx: Any,
        sums: Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]],
        hidden: Float[Tensor, "token d_model"],
        weight: Float[Tensor, "vocab d_model"],
        targets: Int[Tensor, " token"],
        soft_targets: Float[Tensor, "token vocab"] | None,
        rows: int,
        has_gradients: bool,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, " loss"]]:
        weight = weight.detach().requires_grad_(has_gradients)
        of_hidden = []
        of_weight = torch.zeros_like(weight, dtype=torch.float32, requires_grad=False)
        minimised, apart = torch.zeros(2, device=hidden.device)
        parts = hidden.split(rows)
        softs = [None] * len(parts) if soft_targets is None else soft_targets.split(rows)
        for x, target, soft in zip(parts, targets.split(rows), softs, strict=True):
            x = x.detach().requires_grad_(has_gradients)
            with torch.set_grad_enabled(has_gradients):
                part, part_apart = sums(x, weight, target, soft)
            minimised, apart = minimised + part.detach(), apart + part_apart
            if has_gradients:
                of_x, of_w = torch.autograd.grad(part, (x, weight))
                of_hidden.append(of_x)
                of_weight += of_w
        ctx.mark_non_differentiable(apart)
        if has_gradients:
            ctx.save_for_backward(torch.cat(of_hidden), of_weight.to(weight.dtype))
        return minimised, apart

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Float[Tensor, ""], _: Tensor) -> tuple[Tensor | None, ...]:
        of_hidden, of_weight = (gradient * scale for gradient in ctx.saved_tensors)
        return None, of_hidden, of_weight, None, None, None, None
