"""Patterns of attention, and where they are in a text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

NEAR = 8  # tokens
MAX_KEPT = 2**16  # tokens of which it is kept what they are: most come again
# A byte of a part of a character, and a token that spells nothing, as `token_texts` spells them.
NO_TEXT = re.compile(r"\\x[89a-f][0-9a-f]|\A<.+>\Z", re.DOTALL)


class Pattern(NamedTuple):
    """name: also that of its score. where: which queries can show it, in words. least: by how much
    a share exceeds chance. marks: booleans (query, key) of a text. is_place: chance is that of even
    attention."""

    name: str
    where: str
    least: float
    marks: Callable[[Text], np.ndarray]
    meaning: str
    is_place: bool = False


def character_kinds(text: str) -> list[str]:
    """The kind of each character: the first letter of its general category in Unicode, such as L
    for a letter, P for punctuation. A mark, or what joins characters, is of the kind that it
    follows, as in an emoji or a vowel sign."""
    kinds = [""]
    for category in map(unicodedata.category, text):
        joins = category[0] == "M" or category == "Cf"
        kinds.append(kinds[-1] if joins and kinds[-1] in [*"LNPSM"] else category[0])
    return kinds[1:]


def _kinds(token: str) -> list[str]:
    return character_kinds(NO_TEXT.sub("", token))


@lru_cache(MAX_KEPT)
def is_word(token: str) -> bool:
    """Whether a token has three letters or more, vowel signs among them; what joins letters is
    none."""
    visible = "".join(c for c in token if unicodedata.category(c) != "Cf")
    return sum(kind in "LM" for kind in _kinds(visible)) >= 3


@lru_cache(MAX_KEPT)
def is_punctuation(token: str) -> bool:
    """Whether a token has punctuation or symbols, and no letters or digits."""
    kinds = {*_kinds(token)}
    return bool(kinds & {*"PS"}) and not kinds & {*"LMN"}


def label(token: str) -> str:
    """A token within a sentence, without the white space around it."""
    text = token.strip() or token
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:25])
    return text if len(text) <= 24 else text[:23] + "…"


def _apart(text: Text) -> np.ndarray:
    """The distance from a query back to a key."""
    places = np.arange(len(text.spelled))
    return places[:, None] - places


def _continues(text: Text) -> np.ndarray:
    ids = text.ids
    marks = np.zeros((len(ids), len(ids)), bool)
    # The last token and the one before it are those before the key, and those before these.
    marks[1:, 2:] = (ids[1:, None] == ids[1:-1]) & (ids[:-1, None] == ids[:-2])
    marks &= _apart(text) >= 0
    goes_on = (marks & (text.next_ids[:, None] == ids)).any(-1)
    return marks & goes_on[:, None]


def _copies(text: Text) -> np.ndarray:
    return (text.next_ids[:, None] == text.ids) & (_apart(text) >= 0)


def _last_word(text: Text) -> np.ndarray:
    places = np.arange(len(text.spelled))
    are_words = [is_word(token) for token in text.spelled]
    last = np.maximum.accumulate(np.where(are_words, places, -1))
    return np.append(-1, last[:-1])[:, None] == places


def _punctuation(text: Text) -> np.ndarray:
    marks = np.array([is_punctuation(token) for token in text.spelled])
    return np.tile(marks, (len(marks), 1))


def _previous(text: Text) -> np.ndarray:
    return _apart(text) == 1


def _first(text: Text) -> np.ndarray:
    marks = np.zeros((len(text.spelled),) * 2, bool)
    marks[1:, 0] = True  # the first query has no other choice
    return marks


def _nearby(text: Text) -> np.ndarray:
    apart = _apart(text)
    late = np.arange(len(apart)) > 2 * NEAR  # others have few keys that are far away
    return (abs(apart) <= NEAR) & late[:, None]


# What the tokens before say of the next one comes first: Olsson et al. 2022, "In-context Learning
# and Induction Heads"; then Wang et al. 2022, "Interpretability in the Wild", section 3, and
# Clark et al. 2019, "What Does BERT Look At?", section 3.1. On a first token, attention rests that
# has no use (Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks").
CONTINUES = Pattern(
    "continues repeats",
    "where a passage repeats",
    0.2,
    _continues,
    "share of attention on tokens that followed earlier occurrences of the last two tokens, where "
    "the repeat goes on (induction)",
)
COPIES = Pattern(
    "copies",
    "where what comes next was mentioned before",
    0.2,
    _copies,
    "share of attention on earlier mentions of the next token, where there are any",
)
LAST_WORD = Pattern(
    "last word",
    "after a word",
    0.3,
    _last_word,
    "share of attention on the nearest word of three letters or more before the token",
)
PUNCTUATION = Pattern(
    "punctuation",
    "after punctuation",
    0.25,
    _punctuation,
    "share of attention on punctuation",
)
PREVIOUS = Pattern(
    "previous token",
    "over all text",
    0.4,
    _previous,
    "share of attention on the token directly before",
    is_place=True,
)
FIRST = Pattern(
    "first token",
    "over all text",
    0.4,
    _first,
    "share of attention on the first token (attention sink)",
    is_place=True,
)
NEARBY = Pattern(
    "nearby",
    "over all text",
    0.36,  # about half of its attention, where even attention gives a seventh
    _nearby,
    f"share of attention on tokens at most {NEAR} away, over the tokens that are more than "
    f"{2 * NEAR} after the first",
    is_place=True,
)
PATTERNS = (CONTINUES, COPIES, LAST_WORD, PUNCTUATION, PREVIOUS, FIRST, NEARBY)


def _same_text(text: Text) -> np.ndarray:
    """Nowhere if less than half of the queries are in the other text: a few words that two
    languages share do not show what a head does."""
    same = text.ids[:, None] == text.keys
    return np.asarray(same & (same.any(-1).mean() >= 0.5))


def _at(place: int, text: Text) -> np.ndarray:
    n = len(text.keys)
    return np.tile(np.arange(n) == place % n, (len(text.ids), 1))


# Of cross attention, whose keys are the tokens of another text.
CROSS_PATTERNS = tuple(
    Pattern(name, "in the other text", 0.3, marks, f"share of attention on {meaning}", True)
    for name, marks, meaning in (
        ("same token", _same_text, "the same token in the other text"),
        ("first token", partial(_at, 0), "the first token of the other text"),
        ("last token", partial(_at, -1), "the last token of the other text"),
    )
)


class Text:
    """Where the patterns are in a text: found once, for the maps of every step.

    ids, spelled: of its tokens, shape (n,). half: 0 or 1. following: the id of the token after
    them, -1 if it is not known. counts: the queries that count, booleans; by default, all. causal:
    no query attends to a later key. keys: of cross attention, the ids of the text that is attended
    to.
    """

    def __init__(
        self,
        ids: np.ndarray,
        spelled: Sequence[str],
        half: int,
        following: int = -1,
        counts: np.ndarray | None = None,
        causal: bool = True,
        keys: np.ndarray | None = None,
    ) -> None:
        n = len(ids)
        self.ids, self.spelled, self.half = ids, spelled, half
        self.next_ids = np.append(ids[1:], following)  # of the tokens that come next
        self.patterns = PATTERNS if keys is None else CROSS_PATTERNS
        self.keys = ids if keys is None else keys
        self.n_keys = len(self.keys)
        # Where a head that looks at one token finds it: the first is a place, and of another text,
        # so are all.
        self.elsewhere = np.arange(self.n_keys) > (0 if keys is None else self.n_keys)
        self.counts = np.ones(n, bool) if counts is None else counts
        seen = np.tri(n, self.n_keys, dtype=bool) if causal else np.ones((n, self.n_keys), bool)
        even = seen / seen.sum(-1, keepdims=True)
        seen &= self.counts[:, None]
        marks = [pattern.marks(self) & seen for pattern in self.patterns]
        # Cells of the map, as places in its flat form.
        self.cells = [np.flatnonzero(found) for found in marks]
        self.all = np.flatnonzero(seen)
        self.even = even[self.counts].astype(np.float32)
        self.even_shares = np.array([even[found].sum() for found in marks])
        self.queries = np.array([found.any(-1).sum() for found in marks])

    def apart(self, cells: np.ndarray) -> np.ndarray:
        """The distance from query back to key."""
        query, key = np.divmod(cells, self.n_keys)
        return query - key
