"""Twins: which head of one model does what a head of another does, on the same text.

Two heads are as alike as their attention overlaps: the mean over the queries of sum_k min(a_k,
b_k), which is one minus the total variation distance of the two rows. The twin of a head is the one
that is most like it; several heads can have the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorboard_attention.checks import floats
from tensorboard_attention.limits import MAX_COMPARED, MEMORY_BYTES
from tensorboard_attention.summary import decode

Head = tuple[int, int]  # layer, head


class Twin(NamedTuple):
    """A head of the first model, its twin in the second, and their overlap, from 0 to 1."""

    head: Head
    twin: Head
    overlap: float


def match_heads(first: Sequence[Any], second: Sequence[Any]) -> list[Twin]:
    """The twin of every head of the first maps, best first.

    first, second: the maps of the same text, as for `add_attention`: an array per layer of shape
        (batch, head, query, key), of which the first text counts. The first query does not count:
        in causal maps it can only attend to itself. Weights count as the tab shows them: those that
        are not finite as 0, and others outside 0 to 1 as 0 or 1.

    Raises ValueError for arrays of other shapes, and if the texts have other lengths, or fewer than
    two tokens.
    """
    rows, heads = [], []
    for maps in (first, second):
        if not len(maps) or any(np.ndim(layer) != 4 for layer in maps):
            raise ValueError("maps: give arrays of shape (batch, head, query, key)")
        layers = [np.nan_to_num(floats(layer)[0, :, 1:], posinf=0, neginf=0) for layer in maps]
        layers = [layer.clip(0, 1) for layer in layers]
        heads.append([(n, h) for n, layer in enumerate(layers) for h in range(len(layer))])
        rows.append([head for layer in layers for head in layer])
    if len({head.shape for maps in rows for head in maps}) != 1 or not rows[0][0].size:
        raise ValueError("maps: are not of the same text, of two or more tokens")
    seconds = np.stack(rows[1])
    overlaps = [np.minimum(row, seconds).sum(-1).mean(-1) for row in rows[0]]
    found = [
        Twin(head, heads[1][overlap.argmax()], float(overlap.max()))
        for head, overlap in zip(heads[0], overlaps, strict=True)
    ]
    return sorted(found, key=lambda twin: -twin.overlap)


def match_logged(first: tuple[Any, bytes], second: tuple[Any, bytes]) -> list[Twin]:
    """`match_heads` of two logged maps: header and maps. Raises ValueError unless they are of the
    same text, and for maps that would take too much time or memory."""
    headers = [header for header, _ in (first, second)]
    texts = [[header["tokens"], header.get("keys")] for header in headers]
    if texts[0] != texts[1]:
        raise ValueError("maps: are not of the same text")
    most = max(sum(header["heads"]) for header in headers)
    cells = len(texts[0][0]) * len(texts[0][1] or texts[0][0])
    if most**2 * cells > MAX_COMPARED or 4 * most * cells > MEMORY_BYTES:
        raise ValueError("maps: are too large")
    return match_heads(*(decode(header, packed) for header, packed in (first, second)))
