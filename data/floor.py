"""The floor of every token of a tale: its information, given all tokens before it.

A token also says what does not follow: ` a` excludes ` an`, which is another token. So all words
that can come next are written out, each with its probability and its own tokens, and a token is as
probable as the words whose tokens begin with all tokens of this word up to it. These are the
prefix probabilities of Jelinek and Lafferty (1991), over tokens, and of a grammar that remembers
words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from data.pieces import WORD_START
from data.tales import STORY, Grammar, Slot, ends_sentence

Left = tuple[str | Slot, Any]  # what is still to be written: the next part, and what is left then
_WORD_START = re.compile(WORD_START)


class Derivation(NamedTuple):
    """A derivation of all texts that begin as the text so far.

    probability: given the tokens so far. written: what follows for certain; left: what follows
    that. words: those of the slots. once, held: the words that are not drawn again in the tale, and
    in the sentence.
    """

    probability: float
    written: str
    left: Left | None
    words: dict[str, str]
    once: frozenset[str]
    held: frozenset[str]


def token_bits(
    text: str, before: str, after: str, encode: Callable[[str], Sequence[int]], grammar: Grammar
) -> Float64[np.ndarray, " token"]:
    """The information of every token of `before`, `text` and `after`, in bits: the loss of a
    perfect model. They add up to `Tale.bits`.

    text: a tale. before, after: what surrounds every tale.
    encode: of a tokenizer that `cuts_at_spaces`; it is called often for the same word.

    Raises ValueError for a text that is no tale.
    """
    nothing: frozenset[str] = frozenset()
    agreeing = [Derivation(1.0, before, (STORY, (after, None)), {}, nothing, nothing)]
    bits: list[float] = []
    for word in _WORD_START.split(before + text + after):
        possible = [
            (found, left)
            for derivation in agreeing
            for found, left in _next_words(derivation, grammar)
        ]
        same = [(encode(found), left.probability) for found, left in possible]
        total = 1.0  # more than those of all words, if the last one could have been longer
        for place, token in enumerate(encode(word)):
            same = [pair for pair in same if place < len(pair[0]) and pair[0][place] == token]
            probability = math.fsum(chance for _, chance in same)
            if not probability:
                raise ValueError(f"text: is no tale, from {word!r} on")
            bits.append(math.log2(total / probability))
            total = probability
        agreeing = [
            left._replace(probability=left.probability / total)
            for found, left in possible
            if found == word
        ]
    return np.array(bits)


def _next_words(before: Derivation, grammar: Grammar) -> Iterator[tuple[str, Derivation]]:
    """All words that can come next, each up to the space before another one or the end, with the
    derivations that have them."""
    drafts = [before]
    while drafts:
        draft = drafts.pop()
        end = _WORD_START.search(draft.written)
        if end or draft.left is None:
            place = end.start() if end else len(draft.written)
            yield draft.written[:place], draft._replace(written=draft.written[place:])
            continue
        part, left = draft.left
        if isinstance(part, str):
            held = draft.once if ends_sentence(part) else draft.held
            drafts.append(draft._replace(written=draft.written + part, left=left, held=held))
        elif part.name in draft.words:
            written = draft.written + part.write(draft.words[part.name])
            drafts.append(draft._replace(written=written, left=left))
        else:
            drafts += _choose(draft, part, left, grammar)


def _choose(
    draft: Derivation, slot: Slot, left: Left | None, grammar: Grammar
) -> Iterator[Derivation]:
    """The derivation with each option of a slot."""
    rule = grammar.rules[slot.chosen_rule(draft.words)]
    for option, probability in rule.probabilities(draft.held):
        word, chance = option.word, draft.probability * probability
        if word is None:
            after = left
            for part in reversed(option.parts):
                after = (part, after)
            yield draft._replace(probability=chance, left=after)
        else:
            written = draft.written + slot.write(word)
            once = draft.once | {word} if slot.rule in grammar.unique else draft.once
            words = {**draft.words, slot.name: word}
            yield Derivation(chance, written, left, words, once, draft.held | {word})
