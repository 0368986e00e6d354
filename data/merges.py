"""Byte pair encoding for programs that encode by themselves; its merges as a list, in the letters
of `tokenizers`.

tiktoken merges any two neighbours that are a token together, the lowest rank first; `tokenizers`
merges the pairs of a list, the first one first. Both give the same tokens for every text if the
list has, for each token in the order of the ranks, the pair that `last_merge` finds. For when
tiktoken merges two neighbours, nothing has crossed the borders of their bytes before: the merges
inside were those that these bytes have alone. So only one pair can ever become a given token.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

from data.patterns import Pattern

Ranks = Mapping[bytes, int]


class BytePairs(NamedTuple):
    """Byte-level BPE. Tokens merge within the pieces into which `pattern` cuts a text, the token of
    the lowest id in `ranks` first.

    special: the ids of tokens that no text is encoded to. in_text: those of tokens that a text is
    encoded to where it has their names, before anything else.
    is_normalized: whether a text is encoded in Unicode's normalization form C.
    """

    pattern: Pattern
    ranks: Ranks
    special: Mapping[str, int]
    in_text: Mapping[str, int] = {}
    is_normalized: bool = False


# Bytes that are neither visible nor unambiguous are spelled with the letters from U+0100.
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]
_LETTERS = {byte: byte for byte in _VISIBLE} | {byte: 256 + i for i, byte in enumerate(_HIDDEN)}
_BYTES = {letter: byte for byte, letter in _LETTERS.items()}


def spell(token: bytes) -> str:
    """One letter for each byte."""
    return token.decode("latin-1").translate(_LETTERS)


def unspell(letters: str) -> bytes:
    """What `spell` has spelled. Raises ValueError for other letters."""
    try:
        return bytes([_BYTES[ord(letter)] for letter in letters])
    except KeyError:
        raise ValueError("not the letters of bytes") from None


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
