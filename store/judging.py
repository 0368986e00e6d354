"""Whether one setting is better than another, from the differences of pairs of runs: intervals at
which one may look after every pair.

They are the repeated confidence intervals of Jennison & Turnbull (1989) for a normal mean of
unknown variance: the mean plus and minus a critical value of t times the standard error. The
critical values spend the error along a function of the number of pairs (Lan & DeMets 1983), and are
computed exactly, by quadrature (Jennison & Turnbull 1991, "Exact calculations for sequential t,
chi-square and F tests", Biometrika 78). All intervals together contain the true difference with a
probability of 95%, however many pairs there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count, islice
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np

ERROR = 0.05  # the probability that any of the intervals misses the true difference
MIN_PAIRS = 4  # of the first interval: fewer can be equal by chance where some runs fail
SPENDING = 10.0  # pairs: suits true differences of one to two standard deviations and 20 pairs
N_ANGLES = 250  # of the quadrature; twice as many change critical values by less than 0.001


class Judgement(NamedTuple):
    """The mean of differences of losses, the interval of the true one, and the `margin` up to which
    a difference does not matter."""

    mean: float
    low: float
    high: float
    margin: float

    @property
    def verdict(self) -> str | None:
        """What is known: "better" if the true difference is below 0, "worse" if it is above, else
        "no difference" if it is within the margin; None if that is open."""
        if self.high < 0 or self.low > 0:
            return "better" if self.high < 0 else "worse"
        return "no difference" if len(self.possible) == 1 else None

    @property
    def possible(self) -> list[str]:
        """What the interval leaves open, if a difference counts beyond the margin alone."""
        found = {
            "better": self.low < -self.margin,
            "no difference": self.low <= self.margin and self.high >= -self.margin,
            "worse": self.high > self.margin,
        }
        return [name for name, is_possible in found.items() if is_possible]

    @property
    def text(self) -> str:
        """The mean and the interval, in percent."""
        # Without a minus before zero.
        mean, low, high = (
            f"{round(x, 4) + 0.0:+.2%}" if math.isfinite(x) else "" for x in self[:3]
        )
        return f"{mean} ({low} to {high})" if high else mean

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"{self.text}, open before pair {MIN_PAIRS}"
        return self.text if self.verdict else f"{self.text}, open: {' or '.join(self.possible)}"


def judge(differences: Sequence[float], margin: float) -> Judgement:
    """What is known after at least one of these differences of losses, idea minus base."""
    n_pairs, centre, half = len(differences), mean(differences), math.inf
    if n_pairs >= MIN_PAIRS:
        half = critical_values(n_pairs)[-1] * stdev(differences) / math.sqrt(n_pairs)
    return Judgement(centre, centre - half, centre + half, margin)


def spent(n_pairs: int) -> float:
    """The probability that one of the intervals up to so many pairs misses: the function of Hwang,
    Shih & DeCani (1990) without an end. It depends on no planned number of pairs, so that one may
    add pairs after an open verdict."""
    return ERROR * (1 - math.exp(-max(0, n_pairs - MIN_PAIRS + 1) / SPENDING))


@cache
def critical_values(n_pairs: int) -> list[float]:
    """Of t, for `MIN_PAIRS` up to `n_pairs` pairs: with differences from a normal distribution
    around 0, |t| exceeds one of the first of them with the probability `spent`."""
    return [*islice(_critical_values(), n_pairs - MIN_PAIRS + 1)]


def _critical_values() -> Iterator[float]:
    """Quadrature over the angle between the vector of the n differences and that of n ones, whose
    tangent is sqrt(n - 1) / |t|. For normal differences around 0, its density is proportional to
    sin^(n - 2). The next difference, in units of the length of the vector, is the tangent of an
    angle with a density proportional to cos^(n - 1), whatever came before."""
    width = math.pi / 2 / N_ANGLES
    angles = (np.arange(N_ANGLES) + 0.5) * width
    following = np.concatenate([-angles[::-1], angles])
    share = np.sin(angles) ** (MIN_PAIRS - 2)
    share /= share.sum()  # of trials that still run, by their angle
    for n in count(MIN_PAIRS):
        # The smallest angles, those of the largest |t|, end here.
        below = np.concatenate([[0.0], share.cumsum()])
        limit = float(np.interp(spent(n) - spent(n - 1), below, np.arange(N_ANGLES + 1)))
        yield math.sqrt(n - 1) / math.tan(limit * width)
        share[: int(limit)] = 0.0
        share[int(limit)] *= 1 - limit % 1
        weights = np.cos(following) ** (n - 1)
        cosine = math.sqrt(n) * np.outer(np.cos(angles), np.cos(following)) + np.sin(following)
        new = np.arccos(np.minimum(np.abs(cosine) / math.sqrt(n + 1), 1.0)) / width - 0.5
        masses = np.outer(share, weights / weights.sum())
        # Each trial is divided among the two nearest angles.
        lower = np.floor(new).astype(int)
        upper_part = masses * (new - lower)
        share = sum(
            np.bincount(np.clip(cells, 0, N_ANGLES - 1).ravel(), part.ravel(), N_ANGLES)
            for cells, part in ((lower, masses - upper_part), (lower + 1, upper_part))
        )
