"""What the model of an open run makes of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from model import record_attention

if TYPE_CHECKING:
    from inference.opening import OpenRun


class Reading(NamedTuple):
    """A text as the model reads it.

    spelled: what each token spells; bytes that are not UTF-8 as escapes.
    logits: of the token after each.
    maps: the attention weights of each layer.
    contexts: of each layer, what its heads gather: the weighted sums of values, before the output
        matrix and before any edit of the same layer.
    """

    tokens: Int[Tensor, " token"]
    spelled: list[str]
    logits: Float[Tensor, "token vocab"]
    maps: list[Float[Tensor, "head query key"]]
    contexts: list[Float[Tensor, "head query d_head"]]


@torch.no_grad()
def read(opened: OpenRun, text: str) -> Reading:
    """`OpenRun.read`."""
    model, tokens = opened.model, opened.tokens(text)
    with record_attention(model, keep="steps") as layers:
        logits = model(tokens[None])[0]
    spelled = [opened.tokenizer.decode_bytes([token]) for token in tokens.tolist()]
    return Reading(
        tokens,
        [spelling.decode(errors="backslashreplace") for spelling in spelled],
        logits,
        [steps.weights[0] for steps in layers],
        [steps.context[0] for steps in layers],
    )
