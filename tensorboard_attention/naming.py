"""What a head is called: one measure and one rule, at every step, in every view and for every
program.

The measure is the share of a head's attention that lies on the keys that a pattern marks, over the
queries that can show the pattern. Chance is the share that the head gives to keys at the same
distances that the pattern does not mark: a head that merely looks three tokens back does not
"continue" a song whose verses are three words long. For a pattern that is itself a place, chance is
the share of even attention.

The rule: a head has a pattern if its share exceeds chance by a threshold in both of two disjoint
halves of what was measured. Its *special* pattern is the first in SPECIAL that it has, its *usual*
one the first in USUAL. It is named after the first of these two that is there, or else "mixed".
From one step of a run to the next a head keeps its name until the share falls to STAYS of the
threshold, or a more special pattern is there: else one that stands at a threshold has another name
at every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tensorboard_attention.patterns import CROSS_PATTERNS, PATTERNS, Text, label

ONE_TOKEN = "one token"  # the one that has most beyond chance, not counting the first of a text
EVENLY = "evenly"  # the share of attention that even attention has in common with the head's
SPECIAL = (
    *("continues repeats", "copies", "same token", "last word", "punctuation", ONE_TOKEN),
    *("previous token", "first token", "last token"),
)  # the most specific one first
USUAL = ("nearby", "previous token", "first token", EVENLY)
ALL_TEXT = "over all text"
# By how much a share exceeds chance; and the queries that it is over.
LEAST = {ONE_TOKEN: 0.2, EVENLY: 0.6}
WHERE = {ONE_TOKEN: ALL_TEXT, EVENLY: ALL_TEXT}
for _pattern in (*CROSS_PATTERNS, *PATTERNS):
    LEAST[_pattern.name], WHERE[_pattern.name] = _pattern.least, _pattern.where
STAYS = 0.75
FEW = 3  # queries in each half; a pattern that fewer can show may be accident
MIXED, BROKEN = "mixed", "not finite"


class HeadName(NamedTuple):
    """label: with its percentage. pattern: its name; "" for none. headline: special and usual, with
    the queries that they are about. details: how often it was seen, and how sure it is. interest:
    from 0 to 1, how much it says."""

    label: str
    pattern: str
    headline: str
    details: str
    interest: float

    @property
    def said(self) -> str:
        """The label without its percentage; "" for none."""
        return self.label.rpartition(" ")[0] if self.pattern else ""


Names = list[list[HeadName]]  # by layer and head

# Of a step at which nothing was measured; live/static/study.js says the same.
UNMEASURED = HeadName(
    *("not measured", "", "not measured at this step"),
    "look.py evidence=true measures the best or the last checkpoint",
    0,
)


class Shares(NamedTuple):
    """The measure of all heads, with one column for each of `names`.

    share: of all that was measured, shape (head, name). halves, chance: of each half, shape (half,
    head, name). queries: how many can show it, shape (half, name). tokens: for each head, the one
    that ONE_TOKEN is about. Shares are NaN where there are no queries.
    """

    names: Sequence[str]
    share: np.ndarray
    halves: np.ndarray
    chance: np.ndarray
    queries: np.ndarray
    tokens: Sequence[str]

    def is_there(self, before: Sequence[HeadName]) -> np.ndarray:
        """Whether each head has each pattern, shape (head, name). before: that of `name_heads`."""
        least = np.tile([LEAST[name] for name in self.names], (len(self.share), 1))
        for head, last in enumerate(before):
            for place, name in enumerate(self.names):
                if self.said(head, name) == last.said:
                    least[head, place] *= STAYS
        with np.errstate(invalid="ignore"):
            beyond = self.halves - self.chance >= least
        found: np.ndarray = (beyond & (self.queries >= FEW)[:, None]).all(0)
        return found

    def said(self, head: int, name: str) -> str:
        """What a head that has the pattern is called."""
        return f"looks at '{label(self.tokens[head])}'" if name == ONE_TOKEN else name


class Measure:
    """The measure over given texts, for the maps of one step after another."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self.texts, self.patterns = texts, texts[0].patterns
        self.names = (*(pattern.name for pattern in self.patterns), ONE_TOKEN, EVENLY)
        ids = np.unique(np.concatenate([text.keys for text in texts]))
        spelled: dict[int, str] = {}
        for text in texts:
            spelled |= dict(zip(text.ids.tolist(), text.spelled, strict=True))
        self.spelled = [spelled.get(id, "") for id in ids.tolist()]  # "": of another text's keys
        self.tokens = [np.searchsorted(ids, text.keys) for text in texts]
        self.longest = max(max(len(text.counts), text.n_keys) for text in texts)
        # By half, and by distance: pairs of query and key, those that are marked, those of a token.
        self.pairs = np.zeros((2, 2 * self.longest))
        self.marks = np.zeros((2, len(self.patterns), 2 * self.longest))
        self.token_pairs = np.zeros((2, len(ids), 2 * self.longest))
        self.queries = np.zeros((2, len(self.names)))
        self.even = np.zeros((2, len(self.patterns)))
        for text, tokens in zip(texts, self.tokens, strict=True):
            pairs = self._by_distance(self._places(text)[1])
            self.pairs[text.half] += pairs[0]
            self.marks[text.half] += pairs[1:]
            cells = text.all[text.elsewhere[text.all % text.n_keys]]
            at = tokens[cells % text.n_keys], text.apart(cells) + self.longest
            np.add.at(self.token_pairs[text.half], at, 1)
            self.queries[text.half] += [*text.queries, *[text.counts.sum()] * 2]
            self.even[text.half] += text.even_shares

    def _places(self, text: Text) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of a text, and then those that each pattern marks: which cells they are, and
        where `_by_distance` counts them."""
        kinds = [text.all, *text.cells]
        cells = np.concatenate(kinds)
        kind = np.repeat(np.arange(len(kinds)), [*map(len, kinds)])
        return cells, text.apart(cells) + self.longest + kind * 2 * self.longest

    def _by_distance(self, at: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """The sum of the weights at each distance, or the number of pairs: of all, and of those of
        each pattern."""
        shape = 1 + len(self.patterns), 2 * self.longest
        found: np.ndarray = np.bincount(at, weights, shape[0] * shape[1]).reshape(shape)
        return found

    def __call__(self, maps: Iterable[np.ndarray]) -> Shares:
        """maps: of each text in order, shape (head, query, key)."""
        n_heads = 0
        for text, tokens, weights in zip(self.texts, self.tokens, maps, strict=True):
            if not n_heads:  # sums by half and head
                n_heads = len(weights)
                total = np.zeros((2, n_heads, 2 * self.longest))
                marked = np.zeros((2, n_heads, *self.marks.shape[1:]))
                on_token = np.zeros((2, n_heads, len(self.spelled)))
                evenly = np.zeros((2, n_heads))
            cells, at = self._places(text)
            for head, row in enumerate(weights.reshape(n_heads, -1)):
                sums = self._by_distance(at, row[cells])
                total[text.half, head] += sums[0]
                marked[text.half, head] += sums[1:]
            counted = weights[:, text.counts]
            elsewhere = counted.sum(1)[:, text.elsewhere]
            np.add.at(on_token[text.half].T, tokens[text.elsewhere], elsewhere.T)
            evenly[text.half] += np.minimum(counted, text.even).sum((1, 2))
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._shares(total, marked, on_token, evenly)

    def _shares(
        self, total: np.ndarray, marked: np.ndarray, on_token: np.ndarray, evenly: np.ndarray
    ) -> Shares:
        # What a head gives to a key at each distance: to any, and to those that are not marked.
        any_key = total / self.pairs[:, None]
        unmarked = (self.pairs[:, None] - self.marks)[:, None]
        others = np.where(
            unmarked > 0, (total[:, :, None] - marked) / unmarked, any_key[:, :, None]
        )
        expected = np.where(self.marks[:, None] > 0, others * self.marks[:, None], 0).sum(-1)
        is_place = [pattern.is_place for pattern in self.patterns]
        expected = np.where(is_place, self.even[:, None], expected)
        known = np.where(self.pairs[:, None] > 0, any_key, 0)
        of_token = np.einsum("shd,std->sht", known, self.token_pairs)
        token = (on_token - of_token).min(0).argmax(-1)
        heads = np.arange(len(token))
        evenly = np.where(np.isfinite(total.sum(-1)), evenly, np.nan)
        given = np.dstack([marked.sum(-1), on_token[:, heads, token], evenly])
        chance = np.dstack([expected, of_token[:, heads, token], np.zeros_like(evenly)])
        queries = self.queries[:, None]
        return Shares(
            self.names,
            given.sum(0) / queries.sum(0),
            given / queries,
            chance / queries,
            self.queries.astype(int),
            [self.spelled[each] for each in token],
        )


def name_heads(shares: Shares, on: str = "", before: Sequence[HeadName] = ()) -> list[HeadName]:
    """The names of all heads. on: what was measured, said with what holds of this alone. before:
    the names at the step before."""
    names = [_name(shares, head, there) for head, there in enumerate(shares.is_there(before))]
    return [name._replace(headline=name.headline + f" ({on})" * bool(on)) for name in names]


def _name(shares: Shares, head: int, there: np.ndarray) -> HeadName:
    if shares.queries[:, -1].all() and not np.isfinite(shares.share[head, -1]):
        return HeadName(BROKEN, "", "has weights that are not finite", "", 0)
    has = {name for name, is_there in zip(shares.names, there, strict=True) if is_there}
    special = next((name for name in SPECIAL if name in has), None)
    usual = next((name for name in USUAL if name in has and name != special), None)
    found = [name for name in (special, usual) if name]
    if not found:
        details = "No pattern exceeds chance by enough in both halves of the text. " + ". ".join(
            _detail(shares, head, name)
            for name in ("nearby", "first token")
            if name in shares.names and shares.queries[:, shares.names.index(name)].all()
        )
        return HeadName(MIXED, "", "mixed: no pattern clearly beyond chance", details, 0)
    rank = SPECIAL.index(special) if special else len(SPECIAL)
    share = float(shares.share[head, shares.names.index(found[0])])
    return HeadName(
        _label(shares, head, found[0]),
        found[0],
        " · ".join(f"{_label(shares, head, name)} {WHERE[name]}" for name in found),
        ". ".join(_detail(shares, head, name) for name in found),
        round((len(SPECIAL) - rank + share) / (len(SPECIAL) + 1), 4),
    )


def _label(shares: Shares, head: int, name: str) -> str:
    share = shares.share[head, shares.names.index(name)]
    return f"{shares.said(head, name)} {100 * share:.0f}%"


def _detail(shares: Shares, head: int, name: str) -> str:
    place = shares.names.index(name)
    with np.errstate(invalid="ignore"):
        one, two, chance = (
            f"{100 * value:.0f}%"
            for value in (*shares.halves[:, head, place], shares.chance[:, head, place].mean())
        )
    beside = "" if name == EVENLY else f", chance {chance}"
    text = _label(shares, head, name)
    count = shares.queries[:, place].sum()
    return (
        f"{text[0].upper()}{text[1:]}: over {count:,} tokens; {one} and {two} in the halves{beside}"
    )


def overview(labels: Sequence[str]) -> str:
    """How many heads have which name, such as "8 heads: mixed (4), copies (3), nearby"."""
    kinds = Counter(kind_of(each) for each in labels)
    parts = [kind + (f" ({count})" if count > 1 else "") for kind, count in kinds.most_common()]
    return f"{len(labels)} head{'s' * (len(labels) > 1)}: {', '.join(parts)}"


def kind_of(label: str) -> str:
    """A label without its percentage and its token."""
    text, _, percent = label.rpartition(" ")
    text = text if percent.endswith("%") else label
    return "looks at one token" if text.startswith("looks at '") else text
