"""What the tokens of a tale are: which repeat earlier words, what they say, and what a model can
know of each at most."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from data.batches import UNSCORED
from data.corpus import Corpus
from data.floor import token_bits
from data.tales import Mention, Tales, tales_rules
from data.tokenizer import Tokenizer

ROLES = (
    "names again",
    "objects again",
    "song",
    "first choices",
    "sentence forms",
    "spelling within a word",
)
AGAIN, OBJECTS, SONG, FIRST, FORMS, SPELLING = range(len(ROLES))
# The next tale begins with some letter. Before one, GPT-2 cuts an empty line into two tokens.
NEXT = "A"


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
    mark = corpus.document_end
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


class TaleRoles(NamedTuple):
    """Whole tales as rows of tokens, as long as they fit the context; what is beyond the end of a
    tale is not scored.

    floor: the information of each target in bits, given the tokens before it: the loss of a perfect
        model. roles: of each target, an index into ROLES.
    """

    inputs: Int64[np.ndarray, "tale token"]
    targets: Int64[np.ndarray, "tale token"]
    floor: Float64[np.ndarray, "tale token"]
    roles: Int64[np.ndarray, "tale token"]


def tale_roles(
    corpus: Corpus | None, tokenizer: Tokenizer, n_tales: int, max_tokens: int
) -> TaleRoles | None:
    """The first validation tales, each with the mark that ends it; None for any other corpus, and
    for a tokenizer with which the floor of a token is not known."""
    if not isinstance(corpus, Tales) or not tokenizer.cuts_at_spaces:
        return None
    mark, grammar = corpus.document_end, tales_rules()
    tales = [*islice(corpus.tales("val"), n_tales)]
    encode = lru_cache(maxsize=None)(tokenizer.encode)
    shape = (len(tales), max_tokens + 1)
    tokens, floor = np.zeros(shape, np.int64), np.zeros(shape)
    roles = np.full(shape, UNSCORED)
    for row, tale in enumerate(tales):
        text = mark + tale.text + mark
        ids = tokenizer.encode(text + NEXT)[: -len(NEXT)]
        lengths = tokenizer.token_bytes[ids]
        bits = token_bits(tale.text, mark, mark + NEXT, encode, grammar)
        shift = [Mention(name, len(mark) + a, len(mark) + b) for name, a, b in tale.mentions]
        found = np.where(lengths.cumsum() > len(mark), token_roles(text, lengths, shift), UNSCORED)
        n = min(len(ids), shape[1])
        tokens[row, :n], floor[row, :n], roles[row, :n] = ids[:n], bits[:n], found[:n]
    targets = np.where(roles == UNSCORED, UNSCORED, tokens)
    # A very short context can hold the first mark alone, which is not scored.
    longest = max(1, (targets != UNSCORED).any(0).nonzero()[0].max(initial=0))
    return TaleRoles(
        tokens[:, :longest],
        targets[:, 1 : longest + 1],
        floor[:, 1 : longest + 1],
        roles[:, 1 : longest + 1],
    )


def token_roles(
    text: str, lengths: Int64[np.ndarray, " token"], mentions: Sequence[tuple[str, int, int]]
) -> Int64[np.ndarray, " token"]:
    """The role of every token of a text in ASCII, whose tokens have these `lengths`.

    mentions: (slot, first character, last character + 1) of every word from a slot, in order.

    The token with the first letter of a word from a slot has the role of the word: of a name, an
    object or another thing that is mentioned again, of the song, or else of a first choice. What
    continues a word is spelling, and all other tokens are the form of a sentence. So an article is
    a form, although ` an` also says something about the word after it.
    """
    ends = np.cumsum(lengths)
    starts = ends - lengths
    is_letter = np.array([character.isalpha() for character in text])
    continues = is_letter[starts] & is_letter[np.maximum(starts - 1, 0)] & (starts > 0)
    found = np.where(continues, SPELLING, FORMS)
    known: set[str] = set()
    for slot, start, end in mentions:
        rule = slot.partition(".")[0]
        again = AGAIN if rule in ("hero", "friend") else OBJECTS
        role = SONG if rule == "sung" else again if slot in known else FIRST
        first = int(np.searchsorted(ends, start, side="right"))
        found[first + 1 : np.searchsorted(starts, end)] = SPELLING
        found[first] = role
        known.add(slot)
    return found
