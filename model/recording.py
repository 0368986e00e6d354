"""Recording attention while a model runs.

Promises: inside `record_attention` the model computes the same context, by the explicit formula;
afterwards it is as it was before, also after an exception. Recordings and edits (model/edits.py)
can be opened and closed in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from model.attention import (
    Attend,
    AttentionSteps,
    CausalSelfAttention,
    causal_mask,
    explicit_attention,
)


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

    modules = [module for module in model.modules() if isinstance(module, CausalSelfAttention)]
    recorders = [recorder(layer) for layer in range(len(modules))]
    for module, own in zip(modules, recorders, strict=True):
        module.attends.append(own)
    try:
        yield records
    finally:
        for module, own in zip(modules, recorders, strict=True):
            module.attends.remove(own)
