"""What a head does, as a sentence with a number and an example from the text.

`RULES` and the thresholds in `scores.py` say which pattern is named, and how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorboard_attention.scores import EVEN, EXAMPLE, MOSTLY, PARTLY, RULES, entropy, share

THIS_TEXT = "this text"  # where scores were measured that were not given
UNKNOWN = "No pattern that the scores know"
SPREAD = "Spreads its attention almost evenly over the tokens"
BROKEN = "Has weights that are not finite"


def sentences(
    maps: Sequence[np.ndarray],
    tokens: Sequence[str],
    scores: Mapping[str, Sequence[np.ndarray]],
    measured: Mapping[str, str],
    causal: bool,
) -> list[list[list[Any]]]:
    """For each layer and head: the sentence; its example as [query, key], or None; and how much it
    tells, from 0 (no pattern is known) to 1.

    maps: one array of shape (1, head, token, token) per layer. scores: one array of shape (head,)
        per layer, by name. measured: where, by name of the score.
    """
    ids = np.unique(tokens, return_inverse=True)[1]
    keys = np.stack([rule.keys(ids) for rule in RULES])
    even = np.tri(len(ids)) if causal else np.ones((len(ids), len(ids)))
    most = np.log2(even.sum(-1)).mean()
    even /= even.sum(-1, keepdims=True)
    here = [measured.get(rule.score) == THIS_TEXT for rule in RULES]
    chance = np.where(here, [share(even[None, None], each)[0] for each in keys], 0)
    # Where examples are looked for: by rule, and last anywhere. Weights count less where there are
    # few keys to attend to. Words that are apart are easier to read.
    words = np.array([any(map(str.isalpha, token)) for token in tokens])
    apart = abs(np.subtract.outer(*[np.arange(len(ids))] * 2)) > 1
    good = (1 - even) * (1 + (words[:, None] & words)) * (1 + apart)
    places = np.concatenate([keys, np.ones_like(keys[:1])]) * good
    found: list[list[list[Any]]] = []
    for layer, each in enumerate(maps):
        missing = np.full(each.shape[1], np.nan)
        values = np.stack([scores[r.score][layer] if r.score in scores else missing for r in RULES])
        rules, tells = _choose(values, chance)
        texts = _texts(each, rules, values, measured, most)
        examples = _examples(each[0], rules, places)
        found.append([])
        for (text, prefix), (pair, weight), tell in zip(texts, examples, tells, strict=True):
            if not np.isfinite(weight):
                found[-1].append([BROKEN, None, 0])
            elif prefix is None or weight < EXAMPLE:
                found[-1].append([text, None, round(float(tell), 4)])
            else:
                query, key = (_label(tokens[place]) for place in pair)
                text += f" ({prefix}from '{query}' to '{key}')"
                found[-1].append([text, pair, round(float(tell), 4)])
    return found


def _texts(
    maps: np.ndarray,
    rules: np.ndarray,
    values: np.ndarray,
    measured: Mapping[str, str],
    most: float,
) -> list[tuple[str, str | None]]:
    """The sentence of each head of a layer, without its example, and what introduces an example;
    None if the head does nothing of which there are examples. most: the largest entropy."""
    bits = np.zeros(len(rules))
    bits[rules < 0] = entropy(maps[:, rules < 0])
    found: list[tuple[str, str | None]] = []
    for head, rule in enumerate(rules.tolist()):
        if rule < 0 and 0 < EVEN * most <= bits[head]:
            text = f"{SPREAD}: entropy {bits[head]:.2f} of at most {most:.2f} bits"
            found.append((text, None))
        elif rule < 0:
            found.append((UNKNOWN, "for example, "))
        else:
            value, where = values[rule, head], measured.get(RULES[rule].score, THIS_TEXT)
            degree = "Mostly " if value >= MOSTLY else "Partly " if value < PARTLY else ""
            text = f"{degree}{RULES[rule].phrase}: {value:.2f} of its attention"
            text = text[0].upper() + text[1:]
            given = where != THIS_TEXT
            found.append((text + f" on {where}" * given, "here " * given))
    return found


def _choose(values: np.ndarray, chance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each head the rule that tells most, -1 for none, and how much it tells.

    values: shape (rule, head), NaN if not measured. chance: the values of even attention.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        beyond = (values - chance[:, None]) / (1 - chance[:, None])
        least = np.array([[rule.least] for rule in RULES])
        beyond = np.where(np.isfinite(beyond) & (beyond >= least), beyond.clip(None, 1), 0)
    tells = beyond * np.array([[rule.interest] for rule in RULES])
    return np.where(tells.any(0), tells.argmax(0), -1), tells.max(0)


def _examples(
    maps: np.ndarray, rules: np.ndarray, places: np.ndarray
) -> list[tuple[list[int], float]]:
    """For each head [query, key] where its weight, times `places` of its rule, is largest, and the
    weight; 0 if there is no place, and not finite if any weight is not."""
    at = np.zeros(len(maps), dtype=int)
    for rule in np.unique(rules):
        heads = np.flatnonzero(rules == rule)
        with np.errstate(invalid="ignore"):
            at[heads] = (maps[heads] * places[rule]).reshape(len(heads), -1).argmax(-1)
    pairs = np.stack(np.unravel_index(at, maps.shape[1:]), -1)
    queries, keys = pairs.T
    weights = maps[np.arange(len(maps)), queries, keys]
    weights = np.where(places[rules, queries, keys] > 0, weights, 0 * maps.sum((1, 2)))
    return list(zip(pairs.tolist(), weights.tolist(), strict=True))


def _label(token: str) -> str:
    """A token within a sentence, without the white space around it."""
    text = token.strip() or token
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:25])
    return text if len(text) <= 24 else text[:23] + "…"
