"""The perfect reader of tales, who knows their grammar, and the floor of every token: its
information, given all tokens before it.

A token also says what does not follow: ` a` excludes ` an`, which is another token. So all words
that can come next are written out, each with its probability and its own tokens, and a token is as
probable as the words whose tokens begin with all tokens of this word up to it. These are the
prefix probabilities of Jelinek and Lafferty (1991), over tokens, and of a grammar that remembers
words.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from data.pieces import WORD_START
from data.tales import STORY, Grammar, Option, Rule, Slot, Tales, ends_sentence, tales_rules
from data.tokenizer import Tokenizer

Left = tuple[str | Slot, Any]  # what is still to be written: the next part, and what is left then
Encode = Callable[[str], Sequence[int]]
TALES = Slot("tales", "tales", None, None)  # tales without an end
NOTHING: frozenset[str] = frozenset()
_WORD_START = re.compile(WORD_START)


class Floor(NamedTuple):
    """What a perfect reader makes of a text.

    nats: the information of each token, given those before it: the loss of a perfect model. NaN
        from the first one on that no tale has there.
    next_tokens: after each token, the probability of every token that can come next, by id; {}
        where that is not known.
    unknown: why some nats are NaN, in one line; "" if none are.
    """

    nats: Float64[np.ndarray, " token"]
    next_tokens: list[dict[int, float]]
    unknown: str = ""


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


def no_floor(n_tokens: int, why: str) -> Floor:
    """That of a text of which nothing is known."""
    return Floor(np.full(n_tokens, np.nan), [{}] * n_tokens, why)


def floor_of(
    tokens: Iterable[Any],
    tokenizer: Tokenizer,
    grammar: Grammar | None = None,
    after: Sequence[str | Slot] = (Tales.document_end, TALES),
) -> Floor:
    """What a perfect reader makes of the tokens of a tale, or of several. What begins a document in
    training may be before the first one, and is certain.

    tokenizer: of a run on tales. If it does not cut at spaces, nothing is known.
    grammar: by default, that of the tales. after: what follows a tale, by default further ones.
    """
    tokens = [*map(int, tokens)]  # those of a tensor are equal to no key of a dictionary
    if not tokenizer.cuts_at_spaces:
        return no_floor(len(tokens), "tokenizer: joins words, so no floor of a token is known")
    rules, unique = tales_rules() if grammar is None else grammar
    tales = Rule([Option((STORY, *after), 1)])
    endless = Grammar({**rules, TALES.rule: tales}, unique)
    start, _ = tokenizer.beginning()
    given = start if [*tokens[: len(start)]] == start[: len(tokens)] else []
    first = Derivation(1.0, "", (TALES, None), {}, NOTHING, NOTHING)
    encode = lru_cache(maxsize=None)(tokenizer.encode)
    found = [*_chances(tokens, [(given, first)], encode, endless)]
    n_known = len(found) - 1
    known = [chances[token] for token, chances in zip(tokens[:n_known], found, strict=False)]
    nats = np.full(len(tokens), np.nan)
    nats[:n_known] = np.abs(np.log(known))  # of a certain token, the sum can be rounded above one
    next_tokens = found[1:] + [{}] * (len(tokens) - n_known)
    if n_known == len(tokens):
        return Floor(nats, next_tokens)
    words = _WORD_START.split(tokenizer.decode(tokens[len(given) :]))
    ends = np.cumsum([len(encode(word)) for word in words])
    place = min(int(np.searchsorted(ends, n_known - len(given), side="right")), len(words) - 1)
    cut = ", or ends within a word" if place == len(words) - 1 else ""
    return Floor(nats, next_tokens, f"text: is no tale, from {words[place]!r:.80} on{cut}")


def _chances(
    tokens: Sequence[int],
    possible: Iterable[tuple[Sequence[int], Derivation]],
    encode: Encode,
    grammar: Grammar,
) -> Iterator[dict[int, float]]:
    """In the place of each token, and after the last one, the probability of every token that can
    be there, by id. The last place is that of a token which cannot, if there is one.

    possible: what can be there first: tokens, and the derivation of what follows them.
    """
    for token in (*tokens, None):
        words: list[tuple[Sequence[int], Derivation]] = []
        for ids, derivation in possible:
            if ids:
                words.append((ids, derivation))
            else:
                found = _next_words(derivation, grammar)
                words += ((encode(word), left) for word, left in found if word)
        chances: dict[int, float] = defaultdict(float)
        for ids, left in words:
            chances[ids[0]] += left.probability
        yield dict(chances)
        if token is None or token not in chances:
            return
        possible = [
            (ids[1:], left._replace(probability=left.probability / chances[token]))
            for ids, left in words
            if ids[0] == token
        ]


def _next_words(before: Derivation, grammar: Grammar) -> Iterator[tuple[str, Derivation]]:
    """All words that can come next, each up to the space before another one or the end, with the
    derivations that have them."""
    drafts = [before]
    while drafts:
        probability, written, left, words, once, held = drafts.pop()
        while not (end := _WORD_START.search(written)) and left is not None:
            part, after = left
            if isinstance(part, str):
                written += part
                held = once if ends_sentence(part) else held
            elif part.name in words:
                written += part.write(words[part.name])
            else:
                draft = Derivation(probability, written, after, words, once, held)
                drafts += _choose(draft, part, grammar)
                break
            left = after
        else:
            place = end.start() if end else len(written)
            rest = Derivation(probability, written[place:], left, words, once, held)
            yield written[:place], rest


def _choose(draft: Derivation, slot: Slot, grammar: Grammar) -> Iterator[Derivation]:
    """A derivation with each option of a slot, which is before what is left."""
    if slot == TALES:  # nothing of one tale is known in the next
        draft = draft._replace(words={}, once=NOTHING, held=NOTHING)
    rule = grammar.rules[slot.chosen_rule(draft.words)]
    for option, probability in rule.probabilities(draft.held):
        word, chance = option.word, draft.probability * probability
        if word is None:
            after = draft.left
            for part in reversed(option.parts):
                after = (part, after)
            yield draft._replace(probability=chance, left=after)
        else:
            written = draft.written + slot.write(word)
            once = draft.once | {word} if slot.rule in grammar.unique else draft.once
            words = {**draft.words, slot.name: word}
            yield Derivation(chance, written, draft.left, words, once, draft.held | {word})
