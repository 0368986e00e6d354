"""Seeing and changing what a model computes: attention is recorded, and parts are switched off
(`ablate`), given other values (`patch`) or changed by a function (`edit`).

Promises: inside `record_attention` the model computes the same context, by the explicit formula.
Afterwards a model is as it was before, also after an exception. Recordings and edits can be opened
and closed in any order; of several edits of one part, that opened last is applied last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from common.errors import check_choice, check_range
from model.attention import (
    Attend,
    AttentionSteps,
    CausalSelfAttention,
    Edit,
    causal_mask,
    explicit_attention,
    join_heads,
)
from model.gpt import GPT, block_of, blocks_of, eval_mode


@contextmanager
def record_attention(model: nn.Module, keep: str = "weights") -> Iterator[list[Any]]:
    """Yield a list that every forward pass fills anew, with one item per layer in layer order.

        with record_attention(model) as maps:
            model(tokens)
        maps[layer][0, head, query, key]

    keep: the name of one tensor of `AttentionSteps`, by default the weights,
        Float[Tensor, "batch head query key"]; or "steps" for whole `AttentionSteps`.

    Tensors are detached; weights are those before dropout (rows sum to one), and the context is
    that before an edit of the same layer. They stay in the list afterwards. With a cache, `query`
    counts the new tokens and `key` all of them. Of several recordings, only the one that was opened
    last is filled. The model itself is switched, so no other thread may run it meanwhile. Of a
    model wrapped by torch.compile, record the original: it runs eagerly, and the compiled code
    stays valid.

    Raises ValueError for an unknown name.
    """
    check_choice("keep", keep, ("steps", *AttentionSteps._fields))
    records: list[Any] = []
    modules = [module for module in model.modules() if isinstance(module, CausalSelfAttention)]
    with ExitStack() as stack:
        for layer, module in enumerate(modules):
            stack.enter_context(editing(module.attends, _recorder(records, layer, keep)))
        yield records


def _recorder(records: list[Any], layer: int, keep: str) -> Attend:
    """The explicit formula, which also puts what is to be kept in the place of the layer."""

    def attend(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float
    ) -> Tensor:
        if mask is None:
            mask = causal_mask(query.shape[2], key.shape[2], query.device)
        steps = explicit_attention(query, key, value, mask, dropout)
        detached = AttentionSteps(*(step.detach() for step in steps))
        # In the place of what is left by an earlier pass. Activation checkpointing computes layers
        # again, the last one first.
        records[layer : layer + 1] = [detached if keep == "steps" else getattr(detached, keep)]
        return steps.context

    return attend


Part = tuple[int, int] | str
Batch = tuple[Int[Tensor, "batch query"], Int[Tensor, "batch query"]]


@contextmanager
def ablate(
    model: nn.Module,
    heads: Iterable[Any],
    by: str | Mapping[Any, Tensor],
    mlps: Iterable[int] = (),
) -> Iterator[None]:
    """Replace the output of some heads, given as (layer, head), before the output matrix, and what
    the MLPs of some layers add to the residual stream.

        means = mean_outputs(model, [(inputs, targets)])
        with ablate(model, [(0, 2), (1, 3)], means, mlps=[0]):
            loss = cross_entropy(model(inputs), targets)

    by: "zero" replaces it by zeros (Michel et al. 2019, "Are Sixteen Heads Really Better than
        One?", section 2.3). Values replace it as those of `patch` do. With the constants of
        `mean_outputs`, later layers still get what the part adds on average, and only lose what
        depends on the token. In a training with constants, the queries of a head get no gradients,
        nor do its keys and values unless other heads share them.

    The model itself is switched, so no other thread may run it meanwhile.

    Raises ValueError for another `by`, for a head or layer that the model does not have, and if
    `by` has no constant of a part; where the model runs, for one of another shape.
    """
    parts: list[Part] = [*heads, *(f"mlp {layer}" for layer in mlps)]
    parts = [(*part,) if isinstance(part, list) else part for part in parts]  # as JSON has them
    changes: dict[Part, Callable[[Tensor], Tensor]]
    if isinstance(by, str) and by == "zero":
        changes = dict.fromkeys(parts, torch.zeros_like)
    elif not isinstance(by, Mapping):
        raise ValueError(f"by: {by!r} is unknown; give 'zero', or means from `mean_outputs`")
    elif missing := [part for part in parts if part not in by]:
        raise ValueError(f"by: has no constant of {missing[0]!r}; give one")
    else:
        changes = {part: partial(_constant, by[part]) for part in parts}
    with edit(model, changes):
        yield


def mean_outputs(model: GPT, batches: Iterable[Batch]) -> dict[Part, Tensor]:
    """The mean of what each head and MLP computes, over all tokens that have a target: constants of
    all parts for `ablate`, each a Float[Tensor, "width"].

    batches: inputs and targets. Targets below 0, such as the -100 of padding, are none. How tokens
        are divided into batches changes nothing but rounding, and one batch is in memory at a time.

    Computed with dropout off, and with the edits that are open. Raises ValueError if no token has a
    target.
    """
    found = OutputSums(model)
    with torch.no_grad(), eval_mode(model):
        for inputs, targets in batches:
            if inputs.shape != targets.shape:
                given = [*map(list, (inputs.shape, targets.shape))]
                raise ValueError(f"batches: inputs and targets have the shapes {given}; give equal")
            with found.reading(targets):
                model.hidden(inputs.to(model.token_embedding.weight.device))
    return found.means()


class OutputSums:
    """What heads and MLPs compute, summed over batches that are read for another purpose, too, in
    eval mode and without gradients."""

    def __init__(self, model: GPT) -> None:
        self.blocks, self.device = blocks_of(model), model.token_embedding.weight.device
        self.sums: dict[tuple[str, int], Any] = {}
        self.n_counted = 0

    @contextmanager
    def reading(self, targets: Int[Tensor, "batch query"]) -> Iterator[None]:
        """While open, the model reads a batch with these targets."""
        counted = (targets >= 0).to(self.device)

        def add(kind: str, layer: int, value: Tensor) -> Tensor:
            joined = join_heads(value) if kind == "heads" else value  # (batch, query, width)
            summed = joined[counted].float().sum(0).cpu().double()  # some devices have no float64
            self.sums[kind, layer] = self.sums.get((kind, layer), 0) + summed
            return value

        with ExitStack() as stack:
            for layer, block in enumerate(self.blocks):
                for kind, edits in (("heads", block.attention.edits), ("mlp", block.mlp_edits)):
                    stack.enter_context(editing(edits, partial(add, kind, layer)))
            yield
        self.n_counted += int(counted.sum())

    def means(self) -> dict[Part, Tensor]:
        """As `mean_outputs` returns them; raises as it does."""
        if not self.n_counted:
            raise ValueError("batches: no token has a target; give targets of 0 or more")
        means: dict[Part, Tensor] = {}
        for layer, block in enumerate(self.blocks):
            joined, added = (
                (self.sums[kind, layer] / self.n_counted).float().to(self.device)
                for kind in ("heads", "mlp")
            )
            for head, mean in enumerate(joined.split(block.attention.d_head)):
                means[layer, head] = mean
            means[f"mlp {layer}"] = added
        return means


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
        the last one, Float[Tensor, "batch query d_model"]. One text is for all texts of the batch,
        and a constant such as Float[Tensor, "d_head"] for every token.

    The model itself is switched, so no other thread may run it meanwhile.

    Raises ValueError for a part that the model does not have, and, where the model runs, for values
    of another shape.
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

    With activation checkpointing, the backward pass computes layers again, and has to be inside the
    block, too. The model itself is switched, so no other thread may run it meanwhile.

    Raises ValueError for a part that the model does not have, and, where the model runs, for a
    value of another shape.
    """
    with ExitStack() as stack:
        for part, change in changes.items():
            stack.enter_context(_changed(model, part, change))
        yield


def _changed(model: nn.Module, part: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The context manager of one part."""
    checked = partial(_fitting, part, change)
    match part:
        case (Integral() as layer, Integral() as head):
            edits = block_of(model, int(layer), int(head)).attention.edits
            return editing(edits, partial(_with_head, int(head), checked))
    found = re.fullmatch(r"(mlp|stream) (-?\d+)", part) if isinstance(part, str) else None
    if not found:
        raise ValueError(
            f"{part!r} is no part of a model; give (layer, head), or one such as 'mlp 1' or "
            "'stream 1'"
        )
    kind, place = found[1], int(found[2])
    if kind == "mlp":
        return editing(block_of(model, place).mlp_edits, checked)
    blocks = blocks_of(model)
    check_range("layer", place, 0, len(blocks))
    (last,) = (module.stream_edits for module in model.modules() if isinstance(module, GPT))
    return editing([*(block.stream_edits for block in blocks), last][place], checked)


def _constant(value: Tensor, _replaced: Tensor) -> Tensor:
    return value


def _fitting(part: Any, change: Callable[[Tensor], Tensor], replaced: Tensor) -> Tensor:
    """The value that takes the place of another one."""
    value = change(replaced)
    if not isinstance(value, Tensor):
        raise ValueError(f"{part}: gives a {type(value).__name__}; give a Tensor")
    # A constant at every token, or one text in all texts of a batch.
    if value.shape in (replaced.shape[-1:], (1, *replaced.shape[1:])):
        value = value.expand_as(replaced)
    if value.shape != replaced.shape:
        raise ValueError(
            f"{part}: has the shape {[*value.shape]}; it replaces {[*replaced.shape]}; give one of "
            "a text with as many tokens, or a constant"
        )
    return value.to(replaced)


def _with_head(
    head: int, change: Edit, context: Float[Tensor, "batch head query d_head"]
) -> Float[Tensor, "batch head query d_head"]:
    context = context.clone()
    context[:, head] = change(context[:, head])
    return context


@contextmanager
def editing(edits: list[Any], edit: Callable[..., Tensor]) -> Iterator[None]:
    """While open, `edit` is the last of a list of edits, or of functions that attend."""
    own = partial(edit)  # is equal to no other, also of the same function
    edits.append(own)
    try:
        yield
    finally:
        edits.remove(own)
