"""Edits of a model while it runs: parts switched off (`ablate`), given other values (`patch`) or
changed by a function (`edit`).

Promises: afterwards the model is as it was before, also after an exception. Edits and recordings
can be opened and closed in any order; of several edits of one part, that opened last is applied
last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from common.errors import check_choice, check_range
from model.attention import CausalSelfAttention, Edit
from model.block import Block, block_of, blocks_of

Part = tuple[int, int] | str


@contextmanager
def ablate(
    model: nn.Module,
    heads: Iterable[tuple[int, int]],
    by: str | Mapping[Any, Tensor],
    mlps: Iterable[int] = (),
) -> Iterator[None]:
    """Replace the output of some heads, given as (layer, head), before the output matrix, and what
    the MLPs of some layers add to the residual stream.

        with ablate(model, [(0, 2), (1, 3)], "mean", mlps=[0]):
            loss = cross_entropy(model(tokens), targets)

    by: "zero" replaces it by zeros (Michel et al. 2019, "Are Sixteen Heads Really Better than
        One?", section 2.3). "mean" replaces it by its mean over all sequences and positions of the
        same forward pass: later layers still get what the part always adds, and only lose what
        depends on the token. The mean of a single token is its own output, so "mean" is of no use
        with a cache, which reads token by token. Constants, by part as for `patch` but of its last
        axis alone, such as {(0, 2): Float[Tensor, "d_head"]}, replace it at every token. They are
        for training without a head, whose queries then get no gradients, nor do its keys and values
        unless other heads share them.

    The model itself is switched, so no other thread may run it meanwhile.

    Raises ValueError for another `by`, for a head or layer that the model does not have, and if
    `by` does not have the constants of these heads and MLPs alone; where the model runs, for a
    constant of another width.
    """
    parts: list[Part] = [*heads, *(f"mlp {layer}" for layer in mlps)]
    changes: dict[Part, Callable[[Tensor], Tensor]]
    if isinstance(by, str):
        check_choice("by", by, ("zero", "mean"))
        changes = dict.fromkeys(parts, torch.zeros_like if by == "zero" else _mean)
    elif wrong := [*({*parts} ^ {*by})]:
        raise ValueError(f"by: has not the constants of heads and mlps alone ({wrong[0]} differs)")
    else:
        changes = {part: partial(_same_constant, by[part]) for part in parts}
    with edit(model, changes):
        yield


@contextmanager
def patch(model: nn.Module, values: Mapping[Any, Tensor]) -> Iterator[None]:
    """Give parts of the model other values, as of another text of the same length (activation
    patching, Vig et al. 2020, "Investigating Gender Bias in Language Models Using Causal Mediation
    Analysis").

        with record_attention(model, keep="context") as contexts:
            model(other_tokens)
        with patch(model, {(1, 3): contexts[1][:, 3]}):
            logits = model(tokens)

    values: by part. (layer, head): what the head gathers, before the output matrix,
        Float[Tensor, "batch query d_head"]. "mlp 1": what the MLP of layer 1 adds to the residual
        stream; "stream 1": the residual stream before layer 1, or with the number of layers, after
        the last one, Float[Tensor, "batch query d_model"].

    The model itself is switched, so no other thread may run it meanwhile.

    Raises ValueError for a part that the model does not have, and, where the model runs, for values
    of another shape than those that they replace.
    """
    changes = {part: partial(_constant, value) for part, value in values.items()}
    with edit(model, changes):
        yield


@contextmanager
def edit(model: nn.Module, changes: Mapping[Any, Callable[[Tensor], Tensor]]) -> Iterator[None]:
    """Change what parts of the model compute: each gets what a function makes of its value.

        with edit(model, {(1, 3): lambda context: 2 * context, "stream 1": steer}):
            logits = model(tokens)

    changes: by part, named as for `patch`; a function gets and returns tensors of the shapes that
        are given there.

    The model itself is switched, so no other thread may run it meanwhile.

    Raises ValueError for a part that the model does not have, and, where the model runs, for a
    value of another shape.
    """
    with ExitStack() as stack:
        for part, change in changes.items():
            stack.enter_context(_changed(model, part, change))
        yield


@contextmanager
def ablate_each_head(block: Block) -> Iterator[None]:
    """Inside, the batch that the block is called with consists of as many copies of a batch as it
    has heads, and copy h is computed without head h: as with `ablate(block, [(0, h)], "mean")`, the
    output of the head is replaced by its mean over the copy."""

    def without_each(
        context: Float[Tensor, "batch head query d_head"],
    ) -> Float[Tensor, "batch head query d_head"]:
        context = context.clone()
        heads = torch.arange(context.shape[1], device=context.device)
        copies = context.unflatten(0, (len(heads), -1))
        own = copies[heads, :, heads]  # (head, batch, query, d_head)
        copies[heads, :, heads] = own.mean((1, 2), keepdim=True).expand_as(own)
        return context

    with _edited(block.attention, without_each):
        yield


def _changed(model: nn.Module, part: Part, change: Callable[[Tensor], Tensor]) -> Any:
    """The context manager of one part."""
    if isinstance(part, tuple):
        attention = block_of(model, *part).attention
        return _edited(attention, partial(_with_head, head=part[1], change=change))
    found = re.fullmatch(r"(mlp|stream) (-?\d+)", part)
    if not found:
        raise ValueError(
            f"{part!r} is no part of a model; give (layer, head), or one such as 'mlp 1' or "
            "'stream 1'"
        )
    kind, layer = found[1], int(found[2])
    checked = partial(_same_shape, part, change)
    if kind == "mlp":
        return _hooked(block_of(model, layer).mlp, lambda _mlp, _inputs, output: checked(output))
    blocks = blocks_of(model)
    check_range("layer", layer, 0, len(blocks))
    after = blocks[layer] if layer < len(blocks) else model.get_submodule("final_norm")
    return _hooked(after, lambda _module, inputs: (checked(inputs[0]), *inputs[1:]), before=True)


def _constant(value: Tensor, _replaced: Tensor) -> Tensor:
    return value


def _same_constant(constant: Tensor, replaced: Tensor) -> Tensor:
    if constant.shape != replaced.shape[-1:]:
        raise ValueError(
            f"by: a constant has the shape {[*constant.shape]}; give {[*replaced.shape[-1:]]}"
        )
    return constant.expand_as(replaced)


def _same_shape(part: Part, change: Callable[[Tensor], Tensor], replaced: Tensor) -> Tensor:
    value = change(replaced)
    if value.shape != replaced.shape:
        raise ValueError(
            f"{part}: has the shape {[*value.shape]}; it replaces {[*replaced.shape]}; give one of "
            "a text with as many tokens"
        )
    return value.to(replaced)


def _with_head(
    context: Float[Tensor, "batch head query d_head"],
    head: int,
    change: Callable[[Tensor], Tensor],
) -> Float[Tensor, "batch head query d_head"]:
    context = context.clone()
    context[:, head] = _same_shape(f"head {head}", change, context[:, head])
    return context


def _mean(value: Float[Tensor, "batch query width"]) -> Float[Tensor, "batch query width"]:
    return value.mean((0, 1), keepdim=True).expand_as(value)


@contextmanager
def _edited(attention: CausalSelfAttention, edit: Edit) -> Iterator[None]:
    attention.edits.append(edit)
    try:
        yield
    finally:
        attention.edits.remove(edit)


@contextmanager
def _hooked(module: nn.Module, hook: Callable[..., Any], before: bool = False) -> Iterator[None]:
    register = module.register_forward_pre_hook if before else module.register_forward_hook
    handle = register(hook)
    try:
        yield
    finally:
        handle.remove()
