"""How the loss that can still be learned falls with size: power laws over runs of several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from common.errors import UserError
from data.tokenizer import Tokenizer
from inference.comparison import differing, student
from inference.opening import read_config
from inference.results import Row
from model import GPT
from training.run import Run

FEWEST, SPAN = 3, 2  # sizes, and the ratio of the largest to the smallest: less shows no law
# All parameters, as in Hoffmann et al. (2022); those of blocks and final norm, as in Kaplan et al.
# (2020); and `GPT.flops_per_token` times the tokens of the run.
NAMES = ("parameters", "parameters without embeddings", "training FLOPs")


class PowerLaw(NamedTuple):
    """y = a x^-alpha, by least squares of log y on log x, over runs.

    of: what x counts; y is the loss above the floor, in bits per byte.
    margin: half of the 95% interval of alpha (Student's t with n - 2 degrees of freedom).
    scatter: standard deviation of log y around the law; much larger than that of seeds where there
        is no power law.
    of_seeds: standard deviation of log y of runs with the same x; NaN if no two have the same.
    """

    of: str
    x: Float[np.ndarray, " run"]
    y: Float[np.ndarray, " run"]
    a: float
    alpha: float
    margin: float
    scatter: float
    of_seeds: float

    def __str__(self) -> str:
        low, high = self.alpha - self.margin, self.alpha + self.margin
        text = f"{self.of}: {self.a:.3g} x^-alpha, alpha = {self.alpha:.3f} [{low:.3f}, {high:.3f}]"
        of_seeds = "" if np.isnan(self.of_seeds) else f", of seeds {self.of_seeds:.0%}"
        return f"{text}; scatter {self.scatter:.0%}{of_seeds}"

    def line(self, x: Float[np.ndarray, " point"]) -> Float[np.ndarray, "3 point"]:
        """The law at x, and the 95% interval of the mean of log y there: middle, low, high."""
        logs, at = np.log(self.x), np.log(x)
        middle = np.log(self.a) - self.alpha * at
        from_mean = (at - logs.mean()) ** 2 / ((logs - logs.mean()) ** 2).sum()
        margin = student(len(logs) - 2) * self.scatter * np.sqrt(1 / len(logs) + from_mean)
        return np.exp([middle, middle - margin, middle + margin])


def fit(of: str, x: ArrayLike, y: ArrayLike) -> PowerLaw:
    """The power law of at least three runs, x and y > 0, of at least two different x."""
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    u, v = np.log(xs), np.log(ys)
    squares = ((u - u.mean()) ** 2).sum()
    alpha = -((u - u.mean()) * v).sum() / squares
    intercept = v.mean() + alpha * u.mean()
    scatter = np.sqrt(((v - intercept + alpha * u) ** 2).sum() / (len(u) - 2))
    margin = student(len(u) - 2) * scatter / np.sqrt(squares)
    within = np.concatenate([v[u == one] - v[u == one].mean() for one in np.unique(u)])
    freedom = len(u) - len(np.unique(u))
    of_seeds = np.sqrt((within**2).sum() / freedom) if freedom else np.nan
    found = (float(one) for one in (np.exp(intercept), alpha, margin, scatter, of_seeds))
    return PowerLaw(of, xs, ys, *found)


class Scaling(NamedTuple):
    """The laws of runs of several sizes, and what to know of them, as sentences."""

    laws: list[PowerLaw]
    notes: list[str]

    def lines(self) -> list[str]:
        title = "Bits per byte above the floor, with the 95% interval of alpha:"
        laws = [title, *map(str, self.laws)] if self.laws else []
        return ["", *laws, *self.notes] if laws or self.notes else []


def scaling(rows: Sequence[Row]) -> Scaling:
    """The laws over the runs whose floor is known; none unless these have at least `FEWEST` numbers
    of parameters. Reads the settings and tokenizers of these runs."""
    known = [row for row in rows if row.get("floor_bpb")]
    if not _is_spread([row["parameters"] for row in known]):
        return Scaling([], [])
    above = [row for row in known if row["val_bpb"] > row["floor_bpb"]]
    notes = []
    if at_floor := len(known) - len(above):
        notes.append(
            f"Left out of the power laws, since a loss that is not above the floor has no "
            f"logarithm: {at_floor} of {len(known)} runs"
        )
    if others := [name for name in differing(above) if not name.startswith("model.")]:
        notes.append(f"The power laws ignore that these runs also differ in {', '.join(others)}")
    found = []
    for row in above:
        try:
            found.append((row["val_bpb"] - row["floor_bpb"], *_sizes(row)))
        except UserError as error:
            notes.append(f"Left out of the power laws: {error}")
    y, *sizes = zip(*found, strict=True) if found else [()]
    named = zip(NAMES, sizes, strict=False)  # of no run, there are no sizes
    laws = [fit(name, np.array(x), np.array(y)) for name, x in named if _is_spread(x)]
    return Scaling(laws, notes)


def _sizes(row: Row) -> tuple[int, int, int]:
    """What `NAMES` names, of a run. Its model is built without memory for its weights."""
    run = Run.open(row["run"], "runs")
    with torch.device("meta"):
        vocab_size = Tokenizer.load(run.tokenizer_folder).vocab_size
        model = GPT(read_config(run).model, vocab_size)
    inner = [*model.blocks.parameters(), *model.final_norm.parameters()]
    without_embeddings = sum(parameter.numel() for parameter in inner)
    return model.n_parameters, without_embeddings, model.flops_per_token * row["tokens"]


def _is_spread(x: Sequence[int]) -> bool:
    return len(set(x)) >= FEWEST and max(x) >= SPAN * min(x)
