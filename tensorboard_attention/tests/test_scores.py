"""Each score on patterns with a known value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tensorboard_attention import scores
from tensorboard_attention.scores import loss_rise, loss_rise_error

LENGTHS = st.integers(2, 12)
SHARES = {score.name: score.measure for score in scores.SCORES}


def uniform(n: int) -> np.ndarray:
    """Every query attends equally to all keys up to itself."""
    return (np.tri(n) / np.arange(1, n + 1)[:, None])[None, None]


def pointing(targets: list[int]) -> np.ndarray:
    """Every query attends to a single key."""
    return np.eye(len(targets))[targets][None, None]


@given(LENGTHS)
def test_uniform_causal_attention(n: int) -> None:
    maps, shares = uniform(n), 1 / np.arange(1, n + 1)
    assert_allclose(scores.entropy(maps), [np.log2(np.arange(1, n + 1)).mean()])
    assert_allclose(scores.mean_distance(maps), [(n - 1) / 4])
    assert_allclose(SHARES["same token"](maps), [shares.mean()])
    assert_allclose(SHARES["previous token"](maps), [shares[1:].mean()])
    assert_allclose(SHARES["first token"](maps), [shares[1:].mean()])


@given(LENGTHS)
def test_heads_that_do_one_thing(n: int) -> None:
    """Several heads in one map, each with a single pattern."""
    patterns = {
        "previous token": [max(0, query - 1) for query in range(n)],
        "first token": [0] * n,
        "same token": list(range(n)),
    }
    maps = np.concatenate([pointing(targets) for targets in patterns.values()], 1)
    for head, name in enumerate(patterns):
        assert SHARES[name](maps)[head] == 1
    assert_allclose(scores.entropy(maps), np.zeros(3))
    assert_allclose(scores.mean_distance(maps), [(n - 1) / n, (n - 1) / 2, 0])


@given(st.integers(18, 40), st.booleans())
def test_what_is_nearby(n: int, causal: bool) -> None:
    maps = np.random.default_rng(n).random((1, 2, n, n)) * (np.tri(n) if causal else 1)
    maps /= maps.sum(-1, keepdims=True)
    far = range(17, n)
    near = [[maps[0, head, q, max(0, q - 8) : q + 9].sum() for q in far] for head in range(2)]
    assert_allclose(SHARES["nearby"](maps), np.mean(near, 1))
    assert np.isnan(SHARES["nearby"](uniform(17))).all()


@given(st.integers(2, 8))
def test_copying_heads_on_a_repeated_sequence(n: int) -> None:
    tokens = np.tile(np.random.default_rng(n).permutation(50)[:n], 2)[None]
    induction = pointing([*range(n), *(query - n + 1 for query in range(n, 2 * n))])
    duplicate = pointing([*range(n), *(query - n for query in range(n, 2 * n))])
    maps = np.concatenate([induction, duplicate], 1)
    assert_allclose(SHARES["induction"](maps, tokens), [1, 0])
    assert_allclose(SHARES["duplicate token"](maps, tokens), [0, 1])
    # TransformerLens counts every query, so the same head scores one half there.
    repeats = np.eye(2 * n, k=1 - n)
    assert_allclose((induction[0, 0] * repeats).sum() / induction.sum(), 0.5)


@pytest.mark.parametrize("name", ["induction", "duplicate token"])
def test_without_a_repeated_token_the_score_is_nan(name: str) -> None:
    assert np.isnan(SHARES[name](uniform(4), np.arange(4)[None])).all()


def test_texts_of_a_batch_are_averaged() -> None:
    maps = np.concatenate([pointing([0, 0, 0]), pointing([0, 1, 2])])
    assert_allclose(SHARES["first token"](maps), [0.5])


@pytest.mark.parametrize("score", scores.SCORES, ids=lambda score: score.name)
def test_every_score_of_the_table_can_be_measured(score: scores.Score) -> None:
    """From what it needs: one number per head, and the same for float32 as for float64."""
    n = 20
    maps, tokens = np.tile(uniform(n), (2, 3, 1, 1)), np.array([[0, 1] * (n // 2)] * 2)
    targets = np.tri(n, dtype=bool)
    first, *more = {
        "maps": (maps,),
        "tokens": (maps, tokens),
        "random ids": (maps, tokens),
        "targets": (maps, targets),
        "losses": (np.array([[1.0, 2], [1.5, 3], [0.5, 9]]), np.array([1.0, 3]), np.array([2, 3])),
    }[score.needs]
    exact = score.measure(first, *more)
    assert exact.shape == (3,) and np.isfinite(exact).all()
    assert_allclose(score.measure(first.astype(np.float32), *more), exact, rtol=1e-5)


@pytest.mark.parametrize("needs", ["maps", "tokens", "random ids", "targets"])
def test_scores_rest_on_the_queries_that_change_them(needs: str) -> None:
    rng = np.random.default_rng(0)
    maps, tokens = rng.random((2, 2, 20, 20)), rng.integers(0, 9, (2, 20))
    maps[1, :, 3:6] = 0  # masked
    targets = rng.random((2, 20, 20)) < 0.02
    inputs = {"tokens": (tokens,), "random ids": (tokens,), "targets": (targets,)}.get(needs, ())
    counts = scores.count_queries(needs, [maps], *inputs)
    for score in [score for score in scores.SCORES if score.needs == needs]:
        whole, changed = score.measure(maps, *inputs), 0
        for text, query in np.ndindex(2, 20):
            halved = maps.copy()
            halved[text, :, query] /= 2
            changed += bool((score.measure(halved, *inputs) != whole).any())
        assert 0 < counts.pop(score.name) == changed
    assert not counts


def test_importance_is_how_much_the_loss_rises() -> None:
    losses, counts = np.array([3.0, 5.0]), np.array([1, 4])
    without = [np.array([[4.0, 6.5], [3.0, 3.75]]), losses[None]]
    found = scores.measure("losses", without, losses, counts)
    assert [each.tolist() for each in found["importance"]] == [[0.5, -0.25], [0.0]]


def test_the_error_of_importance_is_the_spread_over_samples() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(50, 200, (400, 30))
    rises = counts * rng.normal(0.3, 0.2, counts.shape)
    means, errors = np.array(
        [
            [measure(one[None], np.zeros(30), n)[0] for measure in (loss_rise, loss_rise_error)]
            for one, n in zip(rises, counts, strict=True)
        ]
    ).T
    assert errors.mean() == pytest.approx(means.std(), rel=0.1)
    assert np.isnan(loss_rise_error(np.ones((2, 1)), np.ones(1), np.ones(1))).all()


def test_the_readme_explains_every_score() -> None:
    readme = (Path(scores.__file__).parent / "README.md").read_text()
    table = "".join(f"| `{score.name}` | {score.meaning} |\n" for score in scores.SCORES)
    assert table in readme
