"""What a head does, as a sentence with a number and an example from the text.

`RULES`, `CROSS_RULES` and the thresholds in `scores.py` say which pattern is named, and how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorboard_attention.scores import (
    CLOSE,
    CROSS_RULES,
    EVEN,
    EXAMPLE,
    FEW,
    MOSTLY,
    PARTLY,
    RULES,
    Rule,
    are_words,
    entropy,
    share,
)

THIS_TEXT = "this text"  # where scores were measured that were not given
UNKNOWN = "No pattern that the scores know"
SPREAD = "Spreads its attention almost evenly over the tokens"
BROKEN = "Has weights that are not finite"
ROLES = {UNKNOWN: "mixed", SPREAD: "spread out", BROKEN: "not finite"}


class Described(NamedTuple):
    """What each head does. sentences, by layer and head: the sentence, an example as [query, key]
    or None, and how informative the pattern is, from 0 (no known pattern) to 1. roles, by layer
    and head: a label with a percentage, and the name of the score. overview: how many heads have
    which role."""

    sentences: list[list[list[Any]]]
    roles: list[list[list[str]]]
    overview: str


class Patterns(NamedTuple):
    """Rules, and where their patterns are in a text. keys: booleans (rule, query, key). even: the
    weights of even attention, (query, key)."""

    rules: Sequence[Rule]
    keys: np.ndarray
    even: np.ndarray


def describe(
    maps: Sequence[np.ndarray],
    tokens: Sequence[str],
    scores: Mapping[str, Sequence[np.ndarray]],
    measured: Mapping[str, str],
    causal: bool,
    key_tokens: Sequence[str] | None = None,
) -> Described:
    """What the heads do.

    maps: one array of shape (1, head, query, key) per layer. scores: one array of shape (head,)
        per layer, by name. measured: where, by name of the score. key_tokens: of cross attention,
        for which no score but the entropy counts.
    """
    patterns = _patterns(tokens, key_tokens, causal)
    if key_tokens is not None:
        scores = {
            rule.score: [share(weights, keys) for weights in maps]
            for rule, keys in zip(patterns.rules, patterns.keys, strict=True)
        }
        measured = dict.fromkeys(scores, THIS_TEXT)
    here = [measured.get(rule.score) == THIS_TEXT for rule in patterns.rules]
    chance = np.where(here, _chance(patterns), 0)[:, None]
    places = _places(patterns, tokens, key_tokens)
    found: list[list[list[Any]]] = []
    roles: list[list[list[str]]] = []
    chosen: list[int] = []
    for layer, weights in enumerate(maps):
        missing = [np.full(weights.shape[1], np.nan)] * len(maps)
        values = np.stack([scores.get(rule.score, missing)[layer] for rule in patterns.rules])
        rules, interest = choose(patterns.rules, values, chance)
        texts = _texts(weights, patterns, rules, values, measured)
        examples = _examples(weights[0], rules, places)
        found.append([])
        roles.append([])
        chosen += rules.tolist()
        for head, (pair, weight), value in zip(texts, examples, interest, strict=True):
            text, prefix, also, role = head
            shown = round(float(value), 4)
            roles[-1].append(role if np.isfinite(weight) else [ROLES[BROKEN], ""])
            if not np.isfinite(weight):
                found[-1].append([BROKEN, None, 0])
            elif prefix is None or weight < EXAMPLE:
                found[-1].append([text, None, shown])
            else:
                query, key = label(tokens[pair[0]]), label((key_tokens or tokens)[pair[1]])
                text += f" ({prefix}from '{query}' to '{key}'{also})"
                found[-1].append([text, pair, shown])
    return Described(found, roles, _overview(patterns.rules, chosen))


def _overview(rules: Sequence[Rule], chosen: Sequence[int]) -> str:
    """How many of all heads follow each rule, given by its number, -1 for none."""
    total = f"of {len(chosen)} heads "
    parts: list[str] = []
    for number, rule in enumerate(rules):
        if count := chosen.count(number):
            parts.append(f"{count} {'' if parts else total}{rule.verbs[count > 1]}")
    return ", ".join(parts) or f"None {total}has a pattern that the scores know"


def _patterns(tokens: Sequence[str], key_tokens: Sequence[str] | None, causal: bool) -> Patterns:
    ids = np.unique([*tokens, *(key_tokens or ())], return_inverse=True)[1]
    queries, others = np.split(ids, [len(tokens)])
    rules: Sequence[Rule] = RULES if key_tokens is None else CROSS_RULES
    second = are_words(tokens) if key_tokens is None else others
    keys = np.stack([rule.marks(queries, second) for rule in rules])
    even = np.tri(len(tokens)) if causal else np.ones(keys.shape[1:])
    return Patterns(rules, keys, even / even.sum(-1, keepdims=True))


def _chance(patterns: Patterns) -> list[float]:
    """The shares of even attention; 1 where only a few queries can show the pattern."""
    return [
        share(patterns.even[None, None], keys)[0] if keys.any(-1).sum() >= FEW else 1.0
        for keys in patterns.keys
    ]


def _places(
    patterns: Patterns, tokens: Sequence[str], key_tokens: Sequence[str] | None
) -> np.ndarray:
    """Where examples are looked for, as factors of the weights: by rule, and last anywhere. Weights
    count less where there are few keys to attend to. Words that are apart are easier to read."""
    queries, keys = (are_words(sequence, letters=1) for sequence in (tokens, key_tokens or tokens))
    places = np.arange(len(tokens))
    apart = np.ones(1) if key_tokens else abs(places[:, None] - places) > 1
    good = (1 - patterns.even) * (1 + (queries[:, None] & keys)) * (1 + 3 * apart)
    return np.concatenate([patterns.keys, np.ones_like(patterns.keys[:1])]) * good


def _texts(
    maps: np.ndarray,
    patterns: Patterns,
    rules: np.ndarray,
    values: np.ndarray,
    measured: Mapping[str, str],
) -> list[tuple[str, str | None, str, list[str]]]:
    """The sentence of each head of a layer, without its example; what stands before and after an
    example, None if the head does nothing of which there are examples; and its role."""
    bits = np.zeros(len(rules))
    bits[rules < 0] = entropy(maps[:, rules < 0])
    most = np.log2((patterns.even > 0).sum(-1)).mean()
    found: list[tuple[str, str | None, str, list[str]]] = []
    for head, rule in enumerate(rules.tolist()):
        if rule < 0 and 0 < EVEN * most <= bits[head]:
            text = f"{SPREAD}: entropy {bits[head]:.2f} of at most {most:.2f} bits"
            found.append((text, None, "", [ROLES[SPREAD], ""]))
        elif rule < 0:
            found.append((UNKNOWN, "for example, ", "", [ROLES[UNKNOWN], ""]))
        else:
            named = patterns.rules[rule]
            value, where = values[rule, head], measured.get(named.score, THIS_TEXT)
            text = claim(named, value)
            given = where != THIS_TEXT
            role = [f"{named.role} {100 * value:.0f}%", named.score]
            found.append((text + f", on {where}" * given, "here " * given, named.also, role))
    return found


def choose(
    rules: Sequence[Rule], values: np.ndarray, chance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each head the number of its rule, -1 for none, and the interest of that. Of the rules
    whose share, beyond that of even attention, is close to the largest, it is the one with the
    largest interest.

    values: shape (rule, head), NaN if not measured. chance: the values of even attention, shape
        (rule, 1) or (rule, head).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        beyond = (values - chance) / (1 - chance)
        least = np.array([[rule.least] for rule in rules])
        beyond = np.where(np.isfinite(beyond) & (beyond >= least), beyond.clip(None, 1), 0)
    fits = np.where(beyond >= CLOSE * beyond.max(0), beyond, 0)
    interest = fits * np.array([[rule.interest] for rule in rules])
    return np.where(interest.any(0), interest.argmax(0), -1), interest.max(0)


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


def claim(rule: Rule, value: float, phrase: str = "") -> str:
    """What a head does that has this share of the pattern, in the words of the rule or others."""
    degree = "Mostly " if value >= MOSTLY else "Partly " if value < PARTLY else ""
    text = f"{degree}{phrase or rule.phrase}: {value:.2f} of its attention{rule.counted}"
    return text[0].upper() + text[1:]


def label(token: str) -> str:
    """A token within a sentence, without the white space around it."""
    text = token.strip() or token
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:25])
    return text if len(text) <= 24 else text[:23] + "…"
