"""The texts of a page: one to begin with, one for means, and the validation text for losses.

Promises: all three are text that the model was not trained on.
"""

from __future__ import annotations

import re
from itertools import islice

import numpy as np
from jaxtyping import UInt32

from data import Corpus, TalesConfig, Tokenizer
from data.tales import Tales

SPARE = Tales(TalesConfig("tales", 10_000, 2, 0.5))  # for a model whose text is not at hand


def validation_tokens(
    corpus: Corpus, tokenizer: Tokenizer, n_tokens: int
) -> UInt32[np.ndarray, " tokens"]:
    """About the first `n_tokens` tokens of the validation split."""
    texts: list[str] = []
    tokens = np.empty(0, np.uint32)
    for piece in corpus.pieces("val"):
        texts.append(piece)
        if sum(map(len, texts)) > n_tokens:  # a token has at least a byte
            break
    tokens = tokenizer.encode_array("".join(texts))
    return tokens[:n_tokens]


def prompt(corpus: Corpus, tokenizer: Tokenizer, context_length: int) -> str:
    """The start of the validation text, of at most half a context: of a tale, the first sentences,
    up to the one that mentions its hero again."""
    most = max(1, context_length // 2)
    if isinstance(corpus, Tales):
        for tale in islice(corpus.tales("val"), 100):
            heroes = [each.end for each in tale.mentions if each.name == "hero"]
            if len(heroes) > 1 and (end := tale.text.find(".", heroes[1])) > 0:
                text = tale.text[: end + 1]
                if len(tokenizer.encode(text)) <= most:
                    return text
    return first_tokens(next(iter(corpus.pieces("val")), "")[: 64 * most], tokenizer, most)


def reference(corpus: Corpus, tokenizer: Tokenizer, context_length: int) -> str:
    """A validation text of at most a context."""
    texts = (
        islice(corpus.pieces("val"), 1, None) if isinstance(corpus, Tales) else corpus.pieces("val")
    )
    text = next(iter(texts), "")[: 64 * context_length]
    return first_tokens(text.strip(), tokenizer, context_length)


def first_tokens(text: str, tokenizer: Tokenizer, most: int) -> str:
    """The longest beginning of a text that is whole characters and at most `most` tokens."""
    kept = tokenizer.decode_bytes(tokenizer.encode(text)[:most])
    text = kept.decode("utf-8", errors="ignore")
    while len(tokenizer.encode(text)) > most:
        text = text[:-1]
    return text
