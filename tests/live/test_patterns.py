"""Scores and sentences of the page are those of scores.py and sentences.py."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import numpy as np
import pytest
from live.patterns import pattern_table
from tensorboard_attention.sentences import THIS_TEXT, describe

from tensorboard_attention.scores import (
    MENTIONS,
    RULES,
    SCORES,
    are_words,
    count_queries,
    measure,
    share,
)
from tests.live.conftest import Call

ASK = """({ describeHeads }, [table, tokens, heads, weights]) => describeHeads(
    table, tokens, heads, Float32Array.from(weights))"""
WORDS = [" the", " hen", " a", ".", "\n", " ", "\x1f", "é", " fox's", "\u202e", "🐔" * 30, "\\xf0"]
NUMBER = re.compile(r"\d\.\d+")


def measured(maps: list[np.ndarray], tokens: list[str]) -> dict[str, list[np.ndarray]]:
    """The scores of SCORES that are measured on the text at hand, by Python."""
    ids = np.unique(tokens, return_inverse=True)[1]
    copy = MENTIONS(ids, are_words(tokens))
    return {
        "copy": [share(each, copy) for each in maps],
        **measure("tokens", maps, ids[None]),
        **measure("maps", maps),
    }


def counted(maps: list[np.ndarray], tokens: list[str]) -> dict[str, int]:
    """Over how many queries they are means."""
    ids = np.unique(tokens, return_inverse=True)[1]
    copy = MENTIONS(ids, are_words(tokens))
    found = count_queries("tokens", maps, ids[None]) | count_queries("maps", maps)
    return found | count_queries("targets", maps, copy)


def drawn(seed: int) -> tuple[list[str], list[np.ndarray]]:
    """Tokens, some of them repeated, and causal maps of patterns of all kinds."""
    random = np.random.default_rng(seed)
    n, heads = int(random.integers(1, 40)), [int(random.integers(1, 4)) for _ in range(2)]
    tokens = [WORDS[i] for i in random.integers(0, len(WORDS), n)]
    ids = np.unique(tokens, return_inverse=True)[1]
    maps = []
    for count in heads:
        scores = random.normal(size=(1, count, n, n)) * random.choice([0.05, 1, 4])
        for head in range(count):
            rule = RULES[random.integers(len(RULES))].marks(ids, are_words(tokens))
            scores[0, head] += random.choice([0, 2, 5]) * rule
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        maps.append((weights / weights.sum(-1, keepdims=True)).astype(np.float32))
    return tokens, maps


def described(module: Call, tokens: list[str], maps: list[np.ndarray]) -> dict[str, Any]:
    triangle = np.tril_indices(len(tokens))
    weights = [each[0, head][triangle] for each in maps for head in range(each.shape[1])]
    flat = ["NaN" if np.isnan(value) else value for value in np.concatenate(weights).astype(float)]
    heads = [each.shape[1] for each in maps]
    return module("patterns.js", ASK, [pattern_table(), tokens, heads, flat])


@pytest.mark.parametrize("part", range(4))
def test_scores_and_sentences_are_those_of_python(module: Call, part: int) -> None:
    named = set()
    for seed in range(50 * part, 50 * part + 50):
        tokens, maps = drawn(seed)
        found, expected = described(module, tokens, maps), measured(maps, tokens)
        assert found["scores"].keys() == expected.keys()
        for name, layers in expected.items():
            for got, wanted in zip(found["scores"][name], layers, strict=True):
                np.testing.assert_allclose(np.array(got, float), wanted, atol=1e-5)
        assert found["counts"] == counted(maps, tokens)
        places = dict.fromkeys(expected, THIS_TEXT)
        told = describe(maps, tokens, expected, places, causal=True)
        heads = told.sentences
        assert found["overview"] == told.overview
        for one, two in zip(chain(*found["roles"]), chain(*told.roles), strict=True):
            assert NUMBER.sub("", one[0]) == NUMBER.sub("", two[0]) and one[1] == two[1]
            share, other = ([*map(float, NUMBER.findall(role[0]))] for role in (one, two))
            assert share == pytest.approx(other, abs=1.01)  # percent
        for got, [text, pair, tells] in zip(chain(*found["sentences"]), chain(*heads), strict=True):
            assert NUMBER.sub("", got[0]) == NUMBER.sub("", text)
            for one, two in zip(NUMBER.findall(got[0]), NUMBER.findall(text), strict=True):
                assert abs(float(one) - float(two)) < 0.011
            assert got[1] == pair and got[2] == pytest.approx(tells, abs=1e-4)
            named.add(text.split(":")[0])
    assert len(named) > 5


def test_a_head_with_weights_that_are_not_finite_says_so(module: Call) -> None:
    maps = [np.tri(3, dtype=np.float32)[None, None] / [[1], [2], [3]]]
    maps[0][0, 0, 2, 1] = np.nan
    found = described(module, ["a", "b", "c"], maps)
    assert found["sentences"] == [[["Has weights that are not finite", None, 0]]]
    assert found["roles"] == [[["not finite", ""]]]


def test_the_page_has_the_table_of_python(module: Call) -> None:
    """Names, meanings and units, of the scores that can be measured on a text at hand."""
    found = described(module, ["a"], [np.ones((1, 1, 1, 1), np.float32)])
    shown = [score for score in SCORES if score.needs not in ("losses", "random ids")]
    assert found["meanings"] == {score.name: score.meaning for score in shown}
    assert [*found["scores"]] == [score.name for score in shown]
    assert found["units"] == {score.name: score.unit for score in shown if score.unit}
