"""The merges of byte pair encoding as a list, in the letters of `tokenizers`.

tiktoken merges any two neighbours that are a token together, the lowest rank first; `tokenizers`
merges the pairs of a list, the first one first. Both give the same tokens for every text if the
list has, for each token in the order of the ranks, the pair that `last_merge` finds. For when
tiktoken merges two neighbours, nothing has crossed the borders of their bytes before: the merges
inside were those that these bytes have alone. So only one pair can ever become a given token.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from data.imported import LETTERS

Ranks = Mapping[bytes, int]


def spell(token: bytes) -> str:
    """One letter for each byte."""
    return token.decode("latin-1").translate(LETTERS)


def merges_of(ranks: Ranks) -> list[tuple[bytes, tuple[bytes, bytes] | None]]:
    """Each token in the order of the ids, with its `last_merge`."""
    return [(token, last_merge(token, ranks)) for token in sorted(ranks, key=ranks.__getitem__)]


def last_merge(token: bytes, ranks: Ranks) -> tuple[bytes, bytes] | None:
    """The two parts whose merge makes `token`; None if it is never made of two parts.

    Such a token is used only for a piece of text that equals it.
    """
    never = sys.maxsize
    parts = [token[i : i + 1] for i in range(len(token))]
    pairs = [ranks.get(token[i : i + 2], never) for i in range(len(token) - 1)]
    while len(parts) > 2:
        lowest = min(pairs)
        if lowest == never:
            return None
        i = pairs.index(lowest)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        del pairs[i]
        if i > 0:
            pairs[i - 1] = ranks.get(parts[i - 1] + parts[i], never)
        if i < len(pairs):
            pairs[i] = ranks.get(parts[i] + parts[i + 1], never)
    return (parts[0], parts[1]) if len(parts) == 2 else None
