"""Scores of maps with a known value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tensorboard_attention import scores
from tensorboard_attention.scores import MEANINGS, NEED, UNITS, measure_text

LENGTHS = st.integers(2, 12)


def uniform(n: int) -> np.ndarray:
    """Every query attends equally to all keys up to itself."""
    return (np.tri(n) / np.arange(1, n + 1)[:, None])[None]


@given(LENGTHS)
def test_uniform_causal_attention(n: int) -> None:
    assert_allclose(scores.entropy(uniform(n)), [np.log2(np.arange(1, n + 1)).mean()])
    assert_allclose(scores.mean_distance(uniform(n)), [(n - 1) / 4])


@given(LENGTHS)
def test_masked_queries_do_not_count(n: int) -> None:
    padded = np.pad(uniform(n), ((0, 0), (0, 3), (0, 3)))
    assert_allclose(scores.entropy(padded), scores.entropy(uniform(n)))
    assert_allclose(scores.mean_distance(padded), scores.mean_distance(uniform(n)))
    spelled = [*map(str, range(n + 3))]
    found = measure_text([padded], spelled, causal=True)
    assert found.counts["first token"] == n - 1
    shares = 1 / np.arange(2, n + 1)
    assert_allclose(found.scores["first token"][0], [shares.mean()])
    assert_allclose(found.scores["previous token"][0], [shares.mean()])


def test_the_scores_of_a_text_are_those_of_the_table() -> None:
    maps = [np.tile(uniform(20), (2, 1, 1)), uniform(20)]
    found = measure_text(maps, ["a", "b"] * 10, causal=True)
    assert {*found.scores} == {*found.counts} == {*MEANINGS} - {NEED}
    assert {*UNITS} <= {*MEANINGS}
    assert all([*map(len, values)] == [2, 1] for values in found.scores.values())
    assert [*map(len, found.names)] == [2, 1]


def test_the_readme_explains_every_score() -> None:
    readme = (Path(scores.__file__).parent / "README.md").read_text()
    assert "".join(f"| `{name}` | {meaning} |\n" for name, meaning in MEANINGS.items()) in readme
