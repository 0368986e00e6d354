"""What the tokens of a tale are: which repeat earlier words, what they say, and what a model can
know of each at most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, UInt

from data.batches import UNSCORED
from data.corpus import Corpus
from data.floor import floor_of
from data.tales import Tales
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
    mark = corpus.document_end
    start = tokenizer.encode(mark + NEXT)[: -len(NEXT)]
    reader = tokenizer.of_text(tuple(start), mark)
    tales = [*islice(corpus.tales("val"), n_tales)]
    shape = (len(tales), max_tokens + 1)
    tokens, floor = np.zeros(shape, np.int64), np.zeros(shape)
    roles = np.full(shape, UNSCORED)
    for row, tale in enumerate(tales):
        text = tale.text + mark
        ids = tokenizer.encode(mark + text + NEXT)[: -len(NEXT)]
        bits = floor_of(ids, reader, after=[mark + NEXT]).nats / math.log(2)
        own = token_roles(text, tokenizer.token_bytes[ids[len(start) :]], tale.mentions)
        found = np.concatenate([np.full(len(start), UNSCORED), own])
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


def document_roles(
    corpus: Corpus | None,
    tokenizer: Tokenizer,
    tokens: UInt[np.ndarray, " token"],
    starts: Int64[np.ndarray, " document"] | None,
) -> Int64[np.ndarray, " token"] | None:
    """The role of every token of the first validation tales, UNSCORED before the first of them.

    tokens: whole documents, which begin at `starts`. None unless they are tales, and the tokens of
        each spell it and nothing else.
    """
    if not isinstance(corpus, Tales) or starts is None:
        return None
    roles = np.full(len(tokens), UNSCORED)
    ends = np.append(starts[1:], len(tokens))
    for tale, start, end in zip(corpus.tales("val"), starts, ends, strict=False):
        text, lengths = tale.text + corpus.document_end, tokenizer.token_bytes[tokens[start:end]]
        if lengths.sum() != len(text):
            return None
        roles[start:end] = token_roles(text, lengths, tale.mentions)
    return roles


def token_roles(
    text: str, lengths: Int64[np.ndarray, " token"], mentions: Sequence[tuple[str, int, int]]
) -> Int64[np.ndarray, " token"]:
    """The role of every token of a text in ASCII, whose tokens have these `lengths`.

    mentions: (slot, first character, last character + 1) of what every slot gives, in order.

    What a slot gives, a word or several, such as ` under a log`, has the role of a name, an object
    or another thing that is mentioned again, of the song, or else of a first choice. What continues
    a word is spelling, and all other tokens are the form of a sentence. So an article before a slot
    is a form, although ` an` also says something about the word after it.
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
        rest = slice(first + 1, np.searchsorted(starts, end))
        found[rest] = np.where(continues[rest], SPELLING, role)
        found[first] = role
        known.add(slot)
    return found
