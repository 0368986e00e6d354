"""The error, the power and the intervals of a verdict, by simulation and closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from store.judging import ERROR, MIN_PAIRS, Judgement, critical_values, judge, spent

N_TRIALS, MAX_PAIRS = 4000, 20
Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray]

# Losses of runs that are not normal: skewed; with heavy tails; some fail, few or half.
LOSSES: dict[str, Draw] = {
    "skewed": lambda rng, shape: rng.lognormal(size=shape),
    "heavy": lambda rng, shape: rng.standard_t(2, shape),
    "few fail": lambda rng, shape: rng.normal(0, 0.02, shape) + (rng.random(shape) < 0.1),
    "half fail": lambda rng, shape: rng.normal(0, 0.02, shape) + (rng.random(shape) < 0.5),
}


def t_values(differences: NDArray) -> NDArray:
    """Of the first MIN_PAIRS, MIN_PAIRS + 1, ... differences of every trial."""
    counts = np.arange(MIN_PAIRS, differences.shape[1] + 1)
    return np.stack([stats.ttest_1samp(differences[:, :n], 0, axis=1)[0] for n in counts], axis=1)


def excludes_zero(differences: NDArray) -> NDArray[np.bool_]:
    """Whether the interval of each trial excludes 0, by the number of pairs from MIN_PAIRS on."""
    critical = np.array(critical_values(differences.shape[1]))
    return np.abs(t_values(differences)) >= critical


def test_an_interval_is_that_of_student_with_its_critical_value() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(1, 2, 9).tolist()
    assert all(judge(values[:n], 0.1).low == -math.inf for n in range(1, MIN_PAIRS))
    first = stats.t.isf(spent(MIN_PAIRS) / 2, MIN_PAIRS - 1)
    assert critical_values(9)[0] == pytest.approx(first, rel=1e-3)
    for n, critical in enumerate(critical_values(9), MIN_PAIRS):
        found, half = judge(values[:n], 0.1), critical * stats.sem(values[:n])
        expected = (np.mean(values[:n]) - half, np.mean(values[:n]) + half)
        assert (found.low, found.high) == pytest.approx(expected)
        is_found = excludes_zero(np.array([values[:n]]))[0, -1]
        assert (found.verdict in ("better", "worse")) == is_found


def test_the_error_after_each_pair_is_exact() -> None:
    rng, n_trials = np.random.default_rng(2), 40_000
    missed = np.logical_or.accumulate(excludes_zero(rng.normal(size=(n_trials, 30))), axis=1)
    expected = np.array([spent(n) for n in range(MIN_PAIRS, 31)])
    assert np.all(np.diff(expected) > 0) and expected[-1] < ERROR and spent(10**6) == ERROR
    deviation = np.sqrt(expected * (1 - expected) / n_trials)
    assert np.all(np.abs(missed.mean(axis=0) - expected) < 4 * deviation)


@pytest.mark.parametrize("kind", LOSSES)
def test_equal_settings_seldom_end_in_a_difference(kind: str) -> None:
    rng, shape = np.random.default_rng(3), (N_TRIALS, MAX_PAIRS)
    differences = LOSSES[kind](rng, shape) - LOSSES[kind](rng, shape)
    n_false = excludes_zero(differences).any(axis=1).sum()
    assert n_false <= stats.binom.isf(0.001, N_TRIALS, ERROR)


@pytest.mark.parametrize(("effect", "power", "n_pairs"), [(1.0, 0.92, 11), (2.0, 0.999, 6)])
def test_true_differences_are_found(effect: float, power: float, n_pairs: int) -> None:
    """Of one and two standard deviations of the difference of a pair; half of them early."""
    differences = np.random.default_rng(4).normal(effect, 1, (N_TRIALS, MAX_PAIRS))
    found = excludes_zero(differences)
    assert found.any(axis=1).mean() > power
    assert np.median(np.where(found.any(axis=1), found.argmax(axis=1), 99) + MIN_PAIRS) <= n_pairs
    assert (t_values(differences)[found] > 0).mean() > 0.999


@pytest.mark.parametrize(("true", "least", "most"), [(0.0, 0.8, 1.0), (1.0, 0.0, ERROR)])
def test_no_difference_is_found_only_within_the_margin(
    true: float, least: float, most: float
) -> None:
    """At the margin itself, seldom."""
    rng, n_found, n_trials = np.random.default_rng(5), 0, 500
    for differences in rng.normal(true, 1, (n_trials, MAX_PAIRS)):
        verdicts = (judge(differences[:n].tolist(), 1.0).verdict for n in range(1, MAX_PAIRS + 1))
        n_found += next(filter(None, verdicts), None) == "no difference"
    assert least * n_trials <= n_found <= most * n_trials


@pytest.mark.parametrize(
    ("low", "high", "verdict", "possible"),
    [
        (-math.inf, math.inf, None, ["better", "no difference", "worse"]),
        (-0.9, 0.2, None, ["better", "no difference"]),
        (-0.2, 0.9, None, ["no difference", "worse"]),
        (-0.4, 0.5, "no difference", ["no difference"]),
        (0.0, 0.0, "no difference", ["no difference"]),
        (-0.9, -0.1, "better", ["better", "no difference"]),
        (0.6, 0.9, "worse", ["worse"]),
    ],
)
def test_what_an_interval_says(
    low: float, high: float, verdict: str | None, possible: list[str]
) -> None:
    found = Judgement((low + high) / 2, low, high, margin=0.5)
    assert (found.verdict, found.possible) == (verdict, possible)
