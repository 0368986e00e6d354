"""Recording attention while a model runs, and ablating heads and MLPs: switching them off.

Promises: inside `record_attention` the model computes the same context, by the explicit formula;
afterwards the model is as it was before, also after an exception. The same holds after `ablate`.
Both can be nested in either order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from errors import check_choice, check_range
from model.attention import (
    Attend,
    AttentionSteps,
    CausalSelfAttention,
    causal_mask,
    explicit_attention,
)
from model.block import Block


@contextmanager
def record_attention(model: nn.Module, keep: str = "weights") -> Iterator[list[Any]]:
    """Yield a list that every forward pass fills anew, with one item per layer in layer order.

        with record_attention(model) as maps:
            model(tokens)
        maps[layer][0, head, query, key]

    keep: the name of one tensor of `AttentionSteps`, by default the weights,
        Float[Tensor, "batch head query key"]; or "steps" for whole `AttentionSteps`.

    Tensors are detached; weights are those before dropout (rows sum to one), and the context is
    that before an ablation of the same layer. They stay in the list afterwards. With a cache,
    `query` counts the new tokens and `key` all of them. In nested recordings only the innermost
    list is filled. The model itself is switched, so no other thread may run it meanwhile. Of a
    model wrapped by torch.compile, record the original: it runs eagerly, and the compiled code
    stays valid.

    Raises ValueError for an unknown name.
    """
    if keep not in ("steps", *AttentionSteps._fields):
        known = ", ".join(AttentionSteps._fields)
        raise ValueError(f"keep: {keep!r} is unknown; choose one of {known}, or steps")
    records: list[Any] = []

    def recorder(layer: int) -> Attend:
        def attend(
            query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float
        ) -> Tensor:
            if mask is None:
                mask = causal_mask(query.shape[2], key.shape[2], query.device)
            steps = explicit_attention(query, key, value, mask, dropout)
            del records[layer:]  # left by an earlier forward pass
            if keep == "steps":
                records.append(AttentionSteps(*(step.detach() for step in steps)))
            else:
                records.append(getattr(steps, keep).detach())
            return steps.context

        return attend

    with _switched(model) as modules:
        for layer, module in enumerate(modules):
            module.attend = _with_core(module.attend, recorder(layer))
        yield records


@contextmanager
def ablate(
    model: nn.Module, heads: Iterable[tuple[int, int]], by: str, mlps: Iterable[int] = ()
) -> Iterator[None]:
    """Replace the output of some heads, given as (layer, head), before the output matrix, and what
    the MLPs of some layers add to the residual stream.

        with ablate(model, [(0, 2), (1, 3)], "mean", mlps=[0]):
            loss = cross_entropy(model(tokens), targets)

    by: "zero" replaces it by zeros (Michel et al. 2019, "Are Sixteen Heads Really Better than
        One?", section 2.3). "mean" replaces it by its mean over all sequences and positions of the
        same forward pass: later layers still get what the part always adds, and only lose what
        depends on the token. The mean of a single token is its own output, so with a cache, which
        reads token by token, only "zero" is useful.

    All parts of a nested ablation are replaced as well. The model itself is switched, as by
    `record_attention`.

    Raises ValueError for another `by`, and for a head or layer that the model does not have.
    """
    check_choice("by", by, ("zero", "mean"))
    chosen: dict[int, list[int]] = defaultdict(list)
    for layer, head in heads:
        chosen[layer].append(head)
    with _switched(model) as modules, _replaced_mlps(model, [*mlps], by):
        for layer, found in chosen.items():
            check_range("layer", layer, 0, len(modules) - 1)
            module = modules[layer]
            for head in found:
                check_range("head", head, 0, module.query.out_features // module.d_head - 1)
            module.attend = _Ablated(module.attend, found, by)
        yield


@contextmanager
def ablate_each_head(block: Block) -> Iterator[None]:
    """Inside, the batch that the block is called with consists of as many copies of a batch as it
    has heads, and copy h is computed without head h: as with `ablate(block, [(0, h)], "mean")`, the
    output of the head is replaced by its mean over the copy."""
    with _switched(block) as (attention,):
        attend = attention.attend

        def without_each(
            query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float
        ) -> Float[Tensor, "batch head query d_head"]:
            context = attend(query, key, value, mask, dropout).clone()
            heads = torch.arange(context.shape[1], device=context.device)
            copies = context.unflatten(0, (len(heads), -1))
            own = copies[heads, :, heads]  # (head, batch, query, d_head)
            copies[heads, :, heads] = own.mean((1, 2), keepdim=True).expand_as(own)
            return context

        attention.attend = without_each
        yield


@contextmanager
def _replaced_mlps(model: nn.Module, layers: list[int], by: str) -> Iterator[None]:
    """The MLPs of these layers give zeros, or the mean of their output."""

    def replaced(_mlp: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        if by == "zero":
            return torch.zeros_like(output)
        return output.mean((0, 1), keepdim=True).expand_as(output)

    blocks = [module for module in model.modules() if isinstance(module, Block)]
    with ExitStack() as stack:
        for layer in layers:
            check_range("layer", layer, 0, len(blocks) - 1)
            hook = blocks[layer].mlp.register_forward_hook(replaced)
            stack.callback(hook.remove)
        yield


@dataclass(frozen=True)
class _Ablated:
    """`attend` with the context of `heads` replaced."""

    attend: Attend
    heads: list[int]
    by: str

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        dropout: float,
    ) -> Float[Tensor, "batch head query d_head"]:
        context = self.attend(query, key, value, mask, dropout).clone()
        if self.by == "zero":
            context[:, self.heads] = 0
        else:
            context[:, self.heads] = context[:, self.heads].mean((0, 2), keepdim=True)
        return context


def _with_core(attend: Attend, core: Attend) -> Attend:
    """`core`, with the ablations of `attend` around it."""
    if isinstance(attend, _Ablated):
        return replace(attend, attend=_with_core(attend.attend, core))
    return core


@contextmanager
def _switched(model: nn.Module) -> Iterator[list[CausalSelfAttention]]:
    """The attention layers, whose `attend` may be replaced; afterwards each has its own back."""
    modules = [module for module in model.modules() if isinstance(module, CausalSelfAttention)]
    attends = [module.attend for module in modules]
    try:
        yield modules
    finally:
        for module, attend in zip(modules, attends, strict=True):
            module.attend = attend
