"""The loss of the next token, from logits or from what they are computed from.

Promises: nats, computed in float32 whatever the dtype of the logits. Except in compiled code, the
logits of a large batch are not in memory as a whole: with a vocabulary of 50,000 tokens, they would
be most of what a training step needs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling

from common.errors import check_choice

PART_BYTES = 1 << 28  # of float32 logits; the loss of more is computed in parts
CPU_ROWS = 1024  # of a part at most on a CPU, where smaller parts take no longer
ALIGNED = 16  # elements of a row of logits: in float32, 1,969 take 15% longer than 1,984
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

    The loss and its gradient are computed together, in parts. The gradient cannot be differentiated
    again, and torch.func does not work. Compiled code has no parts: the compiler keeps all logits,
    in the dtype of the product, and fuses the rest of the loss.

    `torch.nn.functional.linear_cross_entropy` of torch 2.13 takes 1.0 to 1.3 times as long in
    float32, and 0.8 times in bfloat16, where its loss is off by up to 0.7%. It has parts only with
    `LinearCrossEntropyOptions`: then it needs a fifth of the memory, takes 2 to 5 times as long,
    ignores autocast, and is off by up to 14% in bfloat16.

    Raises ValueError for another reduction, and for targets that are not int64 or have another
    shape than the tokens.
    """
    check_choice("reduction", reduction, ("mean", "sum"))
    if targets.dtype != torch.int64 or targets.shape != hidden.shape[:-1]:
        raise ValueError(
            f"targets: are {targets.dtype} of shape {tuple(targets.shape)}; give torch.int64 of "
            f"shape {tuple(hidden.shape[:-1])}"
        )
    if is_compiling():
        loss = cross_entropy(softcap(F.linear(hidden, weight), cap), targets, "sum")
    else:
        device = hidden.device.type
        is_cast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if is_cast else hidden.dtype
        in_parts = _InParts.apply if torch.is_grad_enabled() else _loss
        loss = in_parts(hidden.flatten(0, 1), weight, targets.flatten(), cap, dtype)
    return loss if reduction == "sum" else loss / (targets != IGNORED).sum()


class _InParts(torch.autograd.Function):
    """The summed loss of all tokens, and its gradients.

    The gradients are computed with the loss, while the logits are there; but in float16 in the
    backward pass, from logits that are computed again: only there is the scale of the loss known,
    which keeps what is rounded to float16 in its range.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "token d_model"],
        weight: Float[Tensor, "vocab d_model"],
        targets: Int[Tensor, " token"],
        cap: float | None,
        dtype: torch.dtype,
    ) -> Float[Tensor, ""]:
        ctx.cap, ctx.dtype = cap, dtype
        if dtype == torch.float16:
            ctx.save_for_backward(hidden, weight, targets)
            return _loss(hidden, weight, targets, cap, dtype)
        loss, *gradients = _with_gradients(hidden, weight, targets, cap, dtype)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Float[Tensor, ""]) -> tuple[Tensor | None, ...]:
        if ctx.dtype == torch.float16:
            hidden, weight, targets = ctx.saved_tensors
            found = _with_gradients(hidden, weight, targets, ctx.cap, ctx.dtype, scale)
            gradients = [*found[1:]]
        else:
            gradients = [gradient * scale for gradient in ctx.saved_tensors]
        return *gradients, None, None, None


def _loss(
    hidden: Float[Tensor, "token d_model"],
    weight: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, " token"],
    cap: float | None,
    dtype: torch.dtype,
) -> Float[Tensor, ""]:
    """The summed loss of all tokens, with products in `dtype`."""
    matrix, rows = weight.to(dtype), _rows(weight)
    loss = torch.zeros((), device=hidden.device)
    for part, target in zip(hidden.split(rows), targets.split(rows), strict=True):
        logits = softcap(F.linear(part.to(dtype), matrix).float(), cap)
        loss += cross_entropy(logits, target, "sum")
    return loss


def _rows(weight: Float[Tensor, "vocab d_model"]) -> int:
    """How many tokens a part has."""
    rows = max(1, PART_BYTES // (4 * len(weight)))
    return min(rows, CPU_ROWS) if weight.device.type == "cpu" else rows


def _with_gradients(
    hidden: Float[Tensor, "token d_model"],
    weight: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, " token"],
    cap: float | None,
    dtype: torch.dtype,
    scale: Float[Tensor, ""] | None = None,
) -> tuple[Float[Tensor, ""], Tensor, Tensor]:
    """`_loss`, and its gradients with respect to hidden states and weight, times `scale` (None: 1),
    summed over parts in float32.

    With p the softmax of the logits z, the gradient of a token's loss is p, less 1 at its target.
    """
    n_vocab, rows = len(weight), _rows(weight)
    matrix = weight.to(dtype)  # once for all parts
    if n_vocab % ALIGNED:  # logits of no token fill a row
        matrix = F.pad(matrix, (0, 0, 0, -n_vocab % ALIGNED))
    of_hidden, of_weight = [], torch.zeros_like(matrix, dtype=torch.float32)
    loss = torch.zeros((), device=hidden.device)
    for part, target in zip(hidden.split(rows), targets.split(rows), strict=True):
        x = part.to(dtype)
        logits = softcap(F.linear(x, matrix).float(), cap)
        logits[:, n_vocab:] = -math.inf  # which makes their probability and gradient zero
        is_scored = (target != IGNORED)[:, None]
        column = target[:, None].where(is_scored, 0)
        likeliest = logits.amax(-1, keepdim=True)
        p = logits.softmax(-1)
        # The likeliest logit has the probability 1 / sum(exp(z - likeliest)).
        nats = likeliest - logits[:, :n_vocab].gather(1, column) - p.amax(-1, keepdim=True).log()
        loss += nats.where(is_scored, 0).sum()
        p.scatter_add_(1, column, -torch.ones_like(nats))
        if cap is not None:
            p[:, :n_vocab] *= 1 - (logits[:, :n_vocab] / cap).square()
        if scale is not None:
            p *= scale
        of_logits = p.to(dtype)
        of_hidden.append((of_logits @ matrix * is_scored).to(hidden.dtype))
        of_weight += of_logits.T @ (x * is_scored)
    return loss, torch.cat(of_hidden), of_weight[:n_vocab].to(weight.dtype)
