"""Heads that are held off: what they gather is replaced by a constant, for good.

Promises: the constants are among the weights of the model, so whatever runs, stores or copies it
has them; training does not change them. Knows nothing of how they are measured
(inference/branch.py).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn


def held_off_note(names: str | None) -> str:
    """What to say beside the maps of a model that holds off these heads, such as "L1H3,L0H1"."""
    if names is None:
        return ""
    return f"Held off, and so without any effect: {names.replace(',', ', ')}."


class HeldHeads(nn.Module):
    """Replaces what some heads of a layer gather, before the output matrix, by one constant for
    each. It is the same at every token, so the head passes on nothing that depends on the text, and
    no gradient reaches its queries, keys and values."""

    def __init__(self, heads: Iterable[int], d_head: int) -> None:
        super().__init__()
        # Parameters and not buffers: checkpoints, copies and shards of a model hold its parameters.
        constants = {str(head): nn.Parameter(torch.zeros(d_head), False) for head in heads}
        self.constants = nn.ParameterDict(constants)

    def forward(
        self, context: Float[Tensor, "batch head query d_head"]
    ) -> Float[Tensor, "batch head query d_head"]:
        context = context.clone()
        for head, constant in self.constants.items():
            context[:, int(head)] = constant.to(context.dtype)
        return context
