"""Head scores: what a head attends to, as one number; and the scores and names of a single text.

Queries whose weights are all zero in every head are masked and never count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensorboard_attention.naming import HeadName, Measure, Names, Shares, name_heads
from tensorboard_attention.patterns import PATTERNS, Text

NEED = "need"
THIS_TEXT = "this text"  # where scores and names were measured that were not given
# In the order in which scores are shown.
MEANINGS = {
    NEED: "rise of the loss in nats per token when the head's output is replaced by its mean over "
    "the measured tokens",
    **{pattern.name: pattern.meaning for pattern in PATTERNS},
    "entropy": "spread of attention in bits; 0 if all is on a single token",
    "mean distance": "mean distance in tokens from a query to what it attends to",
}
UNITS = {NEED: "nats per token", "entropy": "bits", "mean distance": "tokens"}  # others are shares

Layers = Sequence[np.ndarray]  # one array per layer


class Heads(NamedTuple):
    """What is known of all heads. scores: by name, one array of shape (head,) per layer. counts:
    over how many queries a score is a mean. names: by layer and head."""

    scores: dict[str, list[np.ndarray]]
    counts: dict[str, int]
    names: Names


def entropy(maps: np.ndarray) -> np.ndarray:
    """Mean entropy of a query's weights in bits (Shannon 1948): log2 n for n equal weights.

    maps: shape (head, query, key), for every query weights that sum to one, or are all zero where
        it is masked; so is that of `mean_distance`.
    """
    with np.errstate(invalid="ignore"):  # NaN for negative weights
        logs = np.log2(maps, out=np.zeros_like(maps), where=maps != 0)
    return 0.0 - _mean((maps * logs).sum(-1), maps)


def mean_distance(maps: np.ndarray) -> np.ndarray:
    """Mean distance in tokens from a query to the keys it attends to (Vig and Belinkov 2019,
    "Analyzing the Structure of Attention", section 4.2)."""
    places = np.arange(maps.shape[-1], dtype=maps.dtype)
    return _mean((maps * abs(places[:, None] - places)).sum(-1), maps)


def _mean(values: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Mean of a value of every query, shape (head, query), over the queries that are not masked."""
    with np.errstate(invalid="ignore"):  # 0 / 0 if all are
        found: np.ndarray = values.sum(-1) / maps.any(-1).sum(-1).astype(values.dtype)
    return found


def heads_of(
    shares: Shares, sizes: Sequence[int], on: str = "", before: Sequence[HeadName] = ()
) -> Heads:
    """The measure as scores and names. sizes: how many heads each layer has. on, before: those of
    `name_heads`."""
    ends, names = np.cumsum(sizes), name_heads(shares, on, before)
    counts = shares.queries.sum(0)
    columns = {name: column for column, name in enumerate(shares.names) if name in MEANINGS}
    return Heads(
        {name: np.split(shares.share[:, column], ends[:-1]) for name, column in columns.items()},
        {name: int(counts[column]) for name, column in columns.items()},
        [names[end - size : end] for end, size in zip(ends, sizes, strict=True)],
    )


def measure_text(
    maps: Layers,
    spelled: Sequence[str],
    causal: bool,
    keys: Sequence[str] | None = None,
    is_named: bool = False,
) -> Heads:
    """What the maps of one text say of its heads. Its halves are every second query.

    maps: one array of shape (head, query, key) per layer. keys: of cross attention. is_named: names
    and scores of patterns are known, and not measured.
    """
    found = Heads({}, {}, []) if is_named else _patterns_of(maps, spelled, causal, keys)
    more = {"entropy": [entropy(layer) for layer in maps]}
    if keys is None:
        more["mean distance"] = [mean_distance(layer) for layer in maps]
    else:  # patterns of cross attention have names, and no curves
        found = found._replace(scores={}, counts={})
    counts = dict.fromkeys(more, int(np.any([layer.any((0, 2)) for layer in maps], 0).sum()))
    return Heads(found.scores | more, found.counts | counts, found.names)


def _patterns_of(
    maps: Layers, spelled: Sequence[str], causal: bool, keys: Sequence[str] | None
) -> Heads:
    ids = np.unique([*spelled, *(keys or ())], return_inverse=True)[1]
    queries, others = np.split(ids, [len(spelled)])
    weights = np.concatenate(list(maps))
    is_there, places = weights.any((0, 2)), np.arange(len(spelled))
    texts = [
        Text(
            queries,
            spelled,
            half,
            counts=is_there & (places % 2 == half),
            causal=causal,
            keys=None if keys is None else others,
        )
        for half in (0, 1)
    ]
    return heads_of(
        Measure(texts)([weights] * 2), [len(layer) for layer in maps], f"on {THIS_TEXT}"
    )
