"""The texts of a page: one to begin with, and one for means; and the names of tales.

Promises: the model was not trained on any of them.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
from jaxtyping import UInt

from data.corpus import Corpus, text_of
from data.tales import Tale, Tales, TalesConfig
from data.tales_grammar import GIRLS, WORDS
from data.tokenizer import Tokenizer

N_TALES = 100  # that are searched for a beginning


def spare_corpus() -> Corpus:
    """Tales, for a model whose own text is not at hand."""
    return Tales(TalesConfig("tales", n_bytes=10_000, seed=2, val_fraction=0.5))


def first_prompt(corpus: Corpus, tokenizer: Tokenizer, context_length: int) -> str:
    """The start of the validation text, at most half a context; of tales, the shortest one up to a
    name that comes next, when two were mentioned twice or more."""
    most = max(1, context_length // 2)
    tales = islice(corpus.tales("val"), N_TALES) if isinstance(corpus, Tales) else ()
    found = [words for tale in tales if len(tokenizer.encode(words := _before_name(tale))) <= most]
    if words := min(filter(None, found), key=len, default=""):
        return words
    return _beginning(next(text_of(corpus, "val"), ""), tokenizer, most)


def _before_name(tale: Tale) -> str:
    named = [mention for mention in tale.mentions if mention.name in ("hero", "friend")]
    for place, mention in enumerate(named):
        known = [earlier.name for earlier in named[:place]]
        if min(known.count("hero"), known.count("friend")) > 1 and place > 4:
            return tale.text[: mention.start].rstrip()
    return ""


def name_groups(corpus: Corpus | None) -> list[list[str]]:
    """The names of tales, those together that can stand for one another: of the same part in a
    tale, with the same pronouns. Of another corpus, none."""
    if not isinstance(corpus, Tales):
        return []
    girls = set(GIRLS)
    return [
        [name for name in WORDS[part] if (name in girls) == is_girl]
        for part in ("hero", "friend")
        for is_girl in (True, False)
    ]


def reference_text(corpus: Corpus, tokenizer: Tokenizer, context_length: int) -> str:
    """Another validation text, of at most a context: a later tale, or a line in the middle and
    those after it."""
    if isinstance(corpus, Tales):
        *_, text = islice(text_of(corpus, "val"), N_TALES)
    else:
        text = next(text_of(corpus, "val"), "")
        text = text[text.find("\n", len(text) // 2) + 1 :].strip() or text
    return _beginning(text, tokenizer, context_length)


def texts_of_tokens(
    tokens: UInt[np.ndarray, " token"], tokenizer: Tokenizer, context_length: int
) -> tuple[str, str]:
    """Both texts, from the tokens of a validation split: its start, at most half a context, and at
    most a context from its middle on."""
    most, middle = max(1, context_length // 2), len(tokens) // 2

    def text(start: int, count: int) -> str:
        chosen = tokens[start : start + count].tolist()
        return _beginning(tokenizer.decode_bytes(chosen).decode(errors="ignore"), tokenizer, count)

    return text(0, most), text(middle, context_length)


def _beginning(text: str, tokenizer: Tokenizer, most: int) -> str:
    """At most `most` tokens of a text, in whole characters."""
    text = text.strip()[: 64 * most]
    text = tokenizer.decode_bytes(tokenizer.encode(text)[:most]).decode(errors="ignore")
    while len(tokenizer.encode(text)) > most:  # the tokens at a new end can be shorter
        text = text[:-1]
    return text
