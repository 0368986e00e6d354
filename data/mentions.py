"""Where words are repeated in a tale: what a head that copies attends to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from jaxtyping import Bool, Int64

from data.corpus import Corpus
from data.tales import Tales
from data.tokenizer import Tokenizer


def copy_texts(
    corpus: Corpus, tokenizer: Tokenizer, n_texts: int, max_tokens: int
) -> tuple[Int64[np.ndarray, "text token"], Bool[np.ndarray, "text token token"]] | None:
    """The first validation tales, and the `copy_targets` of each; None for any other corpus.

    Shorter tales are padded with token 0, which no earlier token attends to in a causal map.
    """
    if not isinstance(corpus, Tales):
        return None
    mark = corpus.config.document_end
    texts, targets = [], []
    for tale in islice(corpus.tales("val"), n_texts):
        tokens = tokenizer.encode(mark + tale.text)[:max_tokens]
        lengths = [len(tokenizer.decode_bytes([token])) for token in tokens]
        mentions = [
            (name, len(mark) + start, len(mark) + end) for name, start, end in tale.mentions
        ]
        texts.append(tokens)
        targets.append(copy_targets(lengths, mentions))
    longest = max(map(len, texts))
    padded_texts = np.zeros((len(texts), longest), dtype=np.int64)
    padded_targets = np.zeros((len(texts), longest, longest), dtype=bool)
    for row, (tokens, marked) in enumerate(zip(texts, targets, strict=True)):
        padded_texts[row, : len(tokens)] = tokens
        padded_targets[row, : len(tokens), : len(tokens)] = marked
    return padded_texts, padded_targets


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
