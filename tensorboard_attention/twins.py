"""Twins: which head of one model does what a head of another does, on the same text.

Two heads are as alike as their attention overlaps: the mean over the queries of sum_k min(a_k,
b_k), which is one minus the total variation distance of the two rows. Each head gets one twin, so
that the sum of the overlaps is as large as possible (the assignment problem; Kuhn 1955).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorboard_attention.checks import floats
from tensorboard_attention.limits import MAX_PRODUCTS, MEMORY_BYTES
from tensorboard_attention.summary import decode

Head = tuple[int, int]  # layer, head


class Twin(NamedTuple):
    """A head of the first model, its twin in the second, and their overlap, from 0 to 1."""

    head: Head
    twin: Head
    overlap: float


def match_heads(first: Sequence[Any], second: Sequence[Any]) -> list[Twin]:
    """The twin of every head of the first maps, best first; some have none if the second model has
    fewer heads.

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
    overlaps = np.array([np.minimum(a, seconds).sum(-1).mean(-1) for a in rows[0]])
    found = [Twin(heads[0][i], heads[1][j], float(overlaps[i, j])) for i, j in assign(overlaps)]
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
    if most**2 * cells > MAX_PRODUCTS or 4 * most * cells > MEMORY_BYTES:
        raise ValueError("maps: are too large")
    return match_heads(*(decode(header, packed) for header, packed in (first, second)))


def assign(values: np.ndarray) -> list[tuple[int, int]]:
    """The pairs (row, column), each row and column in one at most, as many as possible, whose sum
    of values, which are finite, is the largest: shortest augmenting paths (Jonker and Volgenant
    1987)."""
    if len(values) > values.shape[1]:
        return sorted((row, column) for column, row in assign(values.T))
    n, m = values.shape
    cost = -values
    row_price, column_price = np.zeros(n), np.zeros(m)
    owner = np.full(m, -1)  # the row of each column
    for start in range(n):
        distance = np.full(m, np.inf)
        before = np.full(m, -1)  # the column before it on the shortest path
        done = np.zeros(m, bool)
        row, column = start, -1
        length = 0.0
        while row >= 0:
            reach = length + cost[row] - row_price[row] - column_price
            shorter = ~done & (reach < distance)
            distance[shorter], before[shorter] = reach[shorter], column
            column = int(np.where(done, np.inf, distance).argmin())
            length, row = distance[column], owner[column]
            done[column] = True
        # Prices, with which every pair so far stays the cheapest of its row.
        row_price[start] += length
        others = done & (owner >= 0)
        row_price[owner[others]] += length - distance[others]
        column_price[done] -= length - distance[done]
        while column >= 0:
            earlier = before[column]
            owner[column] = start if earlier < 0 else owner[earlier]
            column = earlier
    return sorted((int(row), column) for column, row in enumerate(owner.tolist()) if row >= 0)
