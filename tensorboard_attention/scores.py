"""Head scores: what a head attends to, as one number. `SCORES` is the only list of them, `RULES`
that of the patterns among them, with the words of the sentences about heads.

`maps` has the shape (batch, head, query, key): for every query, weights over keys that sum to one.
Queries and keys are the same tokens, except for scores of cross attention. Each function averages
over the batch and over the queries that count for it, and returns an array of shape (head,), NaN if
no query counts. Queries whose weights are all zero are masked and never count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

NEAR = 8  # tokens


def entropy(maps: np.ndarray) -> np.ndarray:
    """Mean entropy of a query's weights in bits (Shannon 1948): log2 n for n equal weights."""
    with np.errstate(invalid="ignore"):  # NaN for negative weights
        logs = np.log2(maps, out=np.zeros_like(maps), where=maps != 0)
    return 0.0 - _mean((maps * logs).sum(-1), maps)


def mean_distance(maps: np.ndarray) -> np.ndarray:
    """Mean distance in tokens from a query to the keys it attends to (Vig and Belinkov 2019,
    "Analyzing the Structure of Attention", section 4.2)."""
    places = np.arange(maps.shape[-1], dtype=maps.dtype)
    return _mean((maps * abs(places[:, None] - places)).sum(-1), maps)


def share(maps: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Mean total weight on the marked keys. Queries with a marked key count.

    targets: booleans, shape (query, key) or (batch, query, key).
    """
    targets = np.broadcast_to(targets, (len(maps), *maps.shape[-2:]))
    counts = np.asarray(targets[:, None].any(-1))
    return _mean((maps * targets[:, None]).sum(-1), maps, counts)


def _mean(values: np.ndarray, maps: np.ndarray, counts: np.ndarray | bool = True) -> np.ndarray:
    """Mean of a value of every query, 0 for those that do not count, over the queries that count
    and are not masked. Shapes: (batch, head, query), and (batch, 1, query) for `counts`."""
    total = (maps.any(-1) & counts).sum((0, 2))
    with np.errstate(invalid="ignore"):  # 0 / 0 if no query counts
        return values.sum((0, 2)) / total.astype(values.dtype)


def loss_rise(without: np.ndarray, loss: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How much larger the mean losses without each head are than that of the model (Michel et al.
    2019, "Are Sixteen Heads Really Better than One?", section 3.2).

    without: losses without each head, summed over the tokens of each text, shape (head, text).
    loss: the same of the model, shape (text,). counts: the tokens of each text.
    """
    return (without - loss).sum(-1) / counts.sum()


def loss_rise_error(without: np.ndarray, loss: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The standard error of `loss_rise`, which takes the same arguments: that of a ratio of two
    means (Cochran 1977, "Sampling Techniques", chapter 6). NaN for a single text."""
    n, rises = len(counts), without - loss
    apart = rises - loss_rise(without, loss, counts)[:, None] * counts
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt((apart**2).sum(-1) * n / np.float64(n - 1)) / counts.sum()


@dataclass(frozen=True)
class Marks:
    """Which keys a pattern marks for a query: those for which all of this holds. The live page
    reads the same fields (live/static/patterns.js)."""

    nearest: int | None = None  # the least distance from the key to the query
    farthest: int | None = None  # and the largest; negative for later keys
    after: int = 0  # the first query
    key: int | None = None  # the only key
    same: tuple[int, int] | None = None  # (0, -1): the query's token is the one before the key
    word: bool = False  # that token is a word

    def __call__(self, ids: np.ndarray, words: np.ndarray | None = None) -> np.ndarray:
        """The marks as booleans, shape (..., query, key).

        ids: token ids, shape (..., token). words: for `word`, booleans of `are_words`.
        """
        places = np.arange(ids.shape[-1])
        apart = places[:, None] - places
        found = np.broadcast_to(places[:, None] >= self.after, apart.shape)
        if self.nearest is not None:
            found = found & (apart >= self.nearest)
        if self.farthest is not None:
            found = found & (apart <= self.farthest)
        if self.key is not None:
            found = found & (places == self.key)
        if self.same is None:
            return found
        queries, keys = (_shifted(ids, by, -1) for by in self.same)
        same = (queries[..., :, None] == keys[..., None, :]) & (queries[..., :, None] >= 0)
        if self.word and words is not None:
            same &= _shifted(words, self.same[0], False)[:, None]
        return np.asarray(found & same)


def _shifted(values: np.ndarray, by: int, missing: int) -> np.ndarray:
    """What is `by` places later, along the last axis; `missing` beyond the ends."""
    places = np.arange(values.shape[-1]) + by
    is_there = (places >= 0) & (places < len(places))
    return np.where(is_there, np.roll(values, -by, axis=-1), missing)


def are_words(tokens: Sequence[str], letters: int = 3) -> np.ndarray:
    """Whether each token has at least this many letters."""
    return np.array([sum(map(str.isalpha, token)) >= letters for token in tokens])


# What marks keys: booleans (query, key), from token ids.
MarksKeys = Marks | Callable[..., np.ndarray]

# Sentences. Of these shares, a head does what its sentence says partly, or does little else.
PARTLY, MOSTLY = 0.4, 0.7
FEW = 3  # queries; a pattern that fewer can show may be chance
CLOSE = 0.75  # of the largest share: patterns with less are not what a head is said to do
EVEN = 0.8  # of the largest entropy: attention is spread almost evenly
EXAMPLE = 0.1  # the least weight of an example


class Rule(NamedTuple):
    """A pattern: its score, and the sentence for heads in which that is large. `marks`: where it
    is, booleans (query, key), from token ids and `are_words`; in cross attention, from the ids of
    queries and of keys. `interest`: how informative the pattern is, from 0 to 1: where several fit
    a head, the most informative one is named. `meaning`, `needs`: those of its `Score`. `least`:
    the share, beyond that of even attention, below which a head does not have the pattern. `role`:
    the label of such a head. `verbs`: what it does, in the singular and the plural."""

    score: str
    phrase: str
    role: str
    verbs: tuple[str, str]
    interest: float
    marks: MarksKeys
    meaning: str = ""
    needs: str = "maps"
    least: float = 0.25
    counted: str = ""  # of its attention: which queries count, if not all
    also: str = ""  # what an example has in common, said after it


# The only list of patterns.
RULES = (
    Rule(
        "copy",
        "looks back at earlier mentions of the word that comes next",
        "copies words",
        ("copies words", "copy words"),
        0.99,  # induction is a special case of it, and more informative
        # Commas and articles come again and again, and are no mentions.
        Marks(nearest=0, same=(1, 0), word=True),
        "share of attention on earlier mentions of the next word, over the tokens whose next word "
        "was mentioned before",
        needs="targets",
        counted=" where the next word was mentioned before",
        also=", which comes next",
    ),
    # Olsson et al. 2022, "In-context Learning and Induction Heads". Most meaningful on a repeated
    # random sequence, where only copying can produce this pattern.
    Rule(
        "induction",
        "looks at what followed earlier occurrences of the same token",
        "induction",
        ("continues repeats (induction)", "continue repeats (induction)"),
        1,
        Marks(nearest=0, same=(0, -1)),
        "share of attention on tokens that followed earlier occurrences of the same token, from "
        "tokens that occurred before",
        needs="tokens",
        counted=" where the token occurred before",
    ),
    # Wang et al. 2022, "Interpretability in the Wild", section 3.
    Rule(
        "duplicate token",
        "looks back at earlier occurrences of the same token",
        "finds repeats",
        ("finds repeats", "find repeats"),
        1,
        Marks(nearest=1, same=(0, 0)),
        "share of attention on earlier occurrences of the same token, from tokens that occurred "
        "before",
        needs="tokens",
        counted=" where the token occurred before",
    ),
    # Clark et al. 2019, "What Does BERT Look At?", section 3.1.
    Rule(
        "previous token",
        "looks at the token before",
        "previous token",
        ("looks one token back", "look one token back"),
        0.7,
        Marks(nearest=1, farthest=1),
        "share of attention on the token directly before",
    ),
    # Clark et al. 2019, section 3.1.
    Rule(
        "same token",
        "looks at the token itself",
        "itself",
        ("looks at the token itself", "look at the token itself"),
        0.4,
        Marks(nearest=0, farthest=0),
        "share of attention on the query's own position",
    ),
    # The attention sink (Xiao et al. 2023, "Efficient Streaming Language Models with Attention
    # Sinks"). A causal first query can attend to nothing else, so it does not count.
    Rule(
        "first token",
        "rests on the first token",
        "first token",
        ("rests on the first token", "rest on the first token"),
        0.3,
        Marks(after=1, key=0),
        "share of attention on the first token (attention sink)",
    ),
    # Compare the spans of Sukhbaatar et al. 2019, "Adaptive Attention Span in Transformers". Other
    # queries have few keys that are far away.
    Rule(
        "nearby",
        f"looks nearby, at most {NEAR} tokens away",
        "nearby",
        ("looks nearby", "look nearby"),
        0.2,
        Marks(nearest=-NEAR, farthest=NEAR, after=2 * NEAR + 1),
        f"share of attention on tokens at most {NEAR} away, over the tokens that are more than "
        f"{2 * NEAR} after the first",
        least=MOSTLY,
        counted=f" beyond the first {2 * NEAR} tokens",
    ),
)
MENTIONS, INDUCTION, DUPLICATE = (rule.marks for rule in RULES[:3])


class Score(NamedTuple):
    """One head score. `measure` takes the maps and, if `needs` says so, token ids of shape
    (batch, key), those of a text or random ones, or targets as for `share`. A score that needs
    losses takes these and the numbers of tokens instead of the maps: pattern scores cannot say
    whether the model uses a head.
    `cross`: queries and keys need not be the same tokens. `marks`: of a share, which keys are
    marked for a query, from token ids or targets."""

    name: str
    measure: Callable[..., np.ndarray]
    meaning: str
    needs: str = "maps"  # or "tokens", "random ids", "targets" or "losses"
    cross: bool = False
    unit: str = ""  # of scores that are not shares from 0 to 1
    marks: MarksKeys | None = None


def _share_score(name: str, meaning: str, needs: str, marks: MarksKeys) -> Score:
    def measure(maps: np.ndarray, *inputs: np.ndarray) -> np.ndarray:
        return share(maps, marks(*inputs or (np.arange(maps.shape[-1]),)))

    return Score(name, measure, meaning, needs, marks=marks)


def _score_of(rule: Rule) -> Score:
    marks = np.asarray if rule.needs == "targets" else rule.marks
    return _share_score(rule.score, rule.meaning, rule.needs, marks)


# In the order in which they are shown.
SCORES = (
    Score(
        "importance",
        loss_rise,
        "rise of the loss in nats per token when the head's output is replaced by its mean over "
        "these tokens",
        "losses",
        unit="nats per token",
    ),
    Score(
        "importance, error",
        loss_rise_error,
        "standard error of the importance: about how much it differs on other texts",
        "losses",
        unit="nats per token",
    ),
    *map(_score_of, RULES),
    _share_score(
        "induction, random ids",
        "induction on uniformly random tokens, repeated once; few texts resemble that",
        "random ids",
        INDUCTION,
    ),
    _share_score(
        "duplicate token, random ids",
        "duplicate token on uniformly random tokens, repeated once",
        "random ids",
        DUPLICATE,
    ),
    Score(
        "entropy",
        entropy,
        "spread of attention in bits; 0 if all is on a single token",
        cross=True,
        unit="bits",
    ),
    Score(
        "mean distance",
        mean_distance,
        "mean distance in tokens from a query to what it attends to",
        unit="tokens",
    ),
)


def _same_text(ids: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Nowhere if less than half of the queries are in the other text: a few words that two
    languages share do not show what a head does."""
    same = ids[:, None] == keys
    return np.asarray(same & (same.any(-1).mean() >= 0.5))


def _at(place: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda ids, keys: np.tile(np.arange(len(keys)) == place % len(keys), (len(ids), 1))


# Of cross attention, whose keys are the tokens of another text. Their shares are not in SCORES, but
# are measured for the sentences.
CROSS_RULES = (
    Rule(
        "same token",
        "looks at the same token in the other text",
        "same token",
        ("looks at the same token", "look at the same token"),
        1,
        _same_text,
        counted=" from tokens that are there",
    ),
    Rule(
        "first token",
        "rests on the first token of the other text",
        "first token",
        ("rests on the first token", "rest on the first token"),
        0.3,
        _at(0),
    ),
    Rule(
        "last token",
        "rests on the last token of the other text",
        "last token",
        ("rests on the last token", "rest on the last token"),
        0.3,
        _at(-1),
    ),
)


def measure(
    needs: str, maps: Sequence[np.ndarray], *inputs: np.ndarray, known: Collection[str] = ()
) -> dict[str, list[np.ndarray]]:
    """The scores with these `needs` that are not in `known`: one array of shape (head,) per layer.

    maps: one array of shape (batch, head, query, key) per layer.
    """
    wanted = [score for score in SCORES if score.needs == needs and score.name not in known]
    return {score.name: [score.measure(weights, *inputs) for weights in maps] for score in wanted}


def count_queries(
    needs: str, maps: Sequence[np.ndarray], *inputs: np.ndarray, known: Collection[str] = ()
) -> dict[str, int]:
    """Over how many queries the scores of `measure` are means, which takes the same arguments; of a
    head with masked queries, fewer."""
    found = {}
    for score in SCORES:
        if score.needs == needs and score.name not in known:
            counts: np.ndarray | bool = True
            if score.marks is not None:
                marks = score.marks(*inputs or (np.arange(maps[0].shape[-1]),))
                counts = np.asarray(marks[..., None, :, :].any(-1))
            queries = [(weights.any(-1) & counts).sum((0, 2)).max() for weights in maps]
            found[score.name] = int(max(queries))
    return found
