"""Where words are repeated in a tale: what a head that copies attends to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from data.corpus import Corpus
from data.tales import Mention, Tales
from data.tokenizer import Tokenizer


class TaleTexts(NamedTuple):
    """Tales as rows of tokens, padded with token 0, which no earlier token attends to in a causal
    map.

    copies: the `copy_targets` of each, songs aside.
    songs: the tokens of its song, from its first word to its last.
    recalled: those of them whose next token spells a word that the song had before.
    """

    tokens: Int64[np.ndarray, "text token"]
    copies: Bool[np.ndarray, "text token token"]
    songs: Bool[np.ndarray, "text token"]
    recalled: Bool[np.ndarray, "text token"]


def tale_texts(
    corpus: Corpus | None, tokenizer: Tokenizer, n_texts: int, max_tokens: int
) -> TaleTexts | None:
    """The first validation tales, cut after `max_tokens`; None for any other corpus."""
    if not isinstance(corpus, Tales):
        return None
    mark = corpus.config.document_end
    tales = list(islice(corpus.tales("val"), n_texts))
    rows = [tokenizer.encode(mark + tale.text)[:max_tokens] for tale in tales]
    longest = max(map(len, rows))
    texts = TaleTexts(
        np.zeros((len(rows), longest), dtype=np.int64),
        np.zeros((len(rows), longest, longest), dtype=bool),
        np.zeros((len(rows), longest), dtype=bool),
        np.zeros((len(rows), longest), dtype=bool),
    )
    for row, (tale, tokens) in enumerate(zip(tales, rows, strict=True)):
        n = len(tokens)
        lengths = [len(tokenizer.decode_bytes([token])) for token in tokens]
        sung: list[Mention] = []
        others: list[Mention] = []
        for name, start, end in tale.mentions:
            mentions = sung if name.startswith("sung.") else others
            mentions.append(Mention(name, len(mark) + start, len(mark) + end))
        texts.tokens[row, :n] = tokens
        texts.copies[row, :n, :n] = copy_targets(lengths, others)
        ends = np.cumsum(lengths)
        known: set[str] = set()
        for name, start, end in sung:
            spells = (ends > start) & (ends - lengths < end)
            texts.songs[row, :n] |= (ends > sung[0].start) & (ends <= end)
            if name in known:
                texts.recalled[row, : n - 1] |= spells[1:]
            known.add(name)
    return texts._replace(recalled=texts.recalled & texts.songs)


def copy_targets(
    lengths: Sequence[int], mentions: Sequence[tuple[str, int, int]]
) -> Bool[np.ndarray, "token token"]:
    """Where a head that copies attends to in a text: rows are queries, columns keys.

    lengths: the bytes of every token.
    mentions: (name, first byte, last byte + 1) of every word, in order; later mentions of a name
        repeat its earlier ones.

    A row is marked if the next token begins a word that was mentioned before; the marked columns
    are the tokens that spell the earlier mentions.
    """
    ends = np.cumsum(lengths)
    starts = ends - lengths
    targets = np.zeros((len(lengths), len(lengths)), dtype=bool)
    earlier: dict[str, np.ndarray] = {}
    for name, start, end in mentions:
        spells = (starts < end) & (ends > start)
        if not spells.any():
            break  # the text was cut before this mention
        first = int(spells.argmax())
        if name in earlier and first > 0:
            targets[first - 1] |= earlier[name]
        earlier[name] = earlier.get(name, False) | spells
    return np.tril(targets)
