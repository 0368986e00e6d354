"""The floor of every character of a tale: its information, given all characters before it.

The grammar draws a tale by choices, and a choice shows in the text where the first character
differs from that of another option. So all derivations that agree with the text so far are
followed, each with its probability, and what a character leaves of their sum is its own probability
(the prefix probability of Jelinek and Lafferty 1991, here of a grammar that remembers words).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from data.tales import STORY, Grammar, Slot, ends_sentence

Left = tuple[str | Slot, Any]  # what is still to be written: the next part, and what is left then


class Derivation(NamedTuple):
    """A derivation of all texts that begin as the text so far.

    written: what follows for certain; left: what follows that. words: those of the slots. once,
    held: the words that are not drawn again in the tale, and in the sentence.
    """

    probability: float
    written: str
    left: Left | None
    words: dict[str, str]
    once: frozenset[str]
    held: frozenset[str]


def character_bits(text: str, grammar: Grammar) -> Float64[np.ndarray, " character"]:
    """The information of every character of `text`, a tale with what ends it, in bits. They add up
    to `Tale.bits`. Raises ValueError for a text that does not begin as a tale."""
    end = text[len(text.rstrip()) :]
    nothing: frozenset[str] = frozenset()
    agreeing = [Derivation(1.0, "", (STORY, (end, None) if end else None), {}, nothing, nothing)]
    bits = np.zeros(len(text))
    for place, character in enumerate(text):
        agreeing = [after for one in agreeing for after in _advance(one, character, grammar)]
        total = math.fsum(one.probability for one in agreeing)
        if not total:
            raise ValueError(f"text: is no tale, from {text[place : place + 20]!r} on")
        if total != 1:
            bits[place] = -math.log2(total)
            agreeing = [one._replace(probability=one.probability / total) for one in agreeing]
    return bits


def _advance(before: Derivation, character: str, grammar: Grammar) -> Iterator[Derivation]:
    """What becomes of a derivation if this character is next."""
    drafts = [before]
    while drafts:
        draft = drafts.pop()
        if draft.written:
            if draft.written[0] == character:
                yield draft._replace(written=draft.written[1:])
            continue
        if draft.left is None:
            continue
        part, left = draft.left
        if isinstance(part, str):
            held = draft.once if ends_sentence(part) else draft.held
            drafts.append(draft._replace(written=part, left=left, held=held))
        elif part.name in draft.words:
            drafts.append(draft._replace(written=part.write(draft.words[part.name]), left=left))
        else:
            drafts += _choose(draft, part, left, character, grammar)


def _choose(
    draft: Derivation, slot: Slot, left: Left | None, character: str, grammar: Grammar
) -> Iterator[Derivation]:
    """The derivation with each option of a slot, apart from words that begin otherwise."""
    rule = grammar.rules[slot.chosen_rule(draft.words)]
    for option, probability in rule.probabilities(draft.held):
        word, chance = option.word, draft.probability * probability
        if word is None:
            after = left
            for part in reversed(option.parts):
                after = (part, after)
            yield draft._replace(probability=chance, left=after)
        elif (written := slot.write(word))[0] == character:
            once = draft.once | {word} if slot.rule in grammar.unique else draft.once
            words = {**draft.words, slot.name: word}
            yield Derivation(chance, written, left, words, once, draft.held | {word})
