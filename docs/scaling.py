"""Fit how the loss above the floor falls with the size of a model: the figures of docs/scaling.md.

python docs/scaling.py FOLDER [FOLDER ...]

The folders are runs on tales, or contain some, with at least three numbers of parameters. Prints
the power laws on standard output; a mistake is one line on standard error, and exit status 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.errors import UserError, printable  # noqa: E402
from data.tokenizer import Tokenizer  # noqa: E402
from inference.opening import RunConfig, read_config  # noqa: E402
from launch.mistakes import one_line_errors  # noqa: E402
from model import GPT  # noqa: E402
from store.comparison import scored_texts, student  # noqa: E402
from store.results import Row, read_finished  # noqa: E402
from store.run import Run  # noqa: E402

MIN_SIZES = 3  # two always lie on a line
# All parameters, as in Hoffmann et al. (2022); those of blocks and final norm, as in Kaplan et al.
# (2020); and `GPT.flops_per_token` times the tokens of the run.
NAMES = ("parameters", "parameters without embeddings", "training FLOPs")


class PowerLaw(NamedTuple):
    """y = a x^-alpha, by least squares of log y on log x, over runs.

    margin: half of the 95% interval of alpha (Student's t with n - 2 degrees of freedom).
    scatter: standard deviation of log y around the law; much larger than that of seeds where there
        is no power law.
    of_seeds: standard deviation of log y of runs with the same x; NaN if no two have the same.
    """

    a: float
    alpha: float
    margin: float
    scatter: float
    of_seeds: float

    def __str__(self) -> str:
        low, high = self.alpha - self.margin, self.alpha + self.margin
        text = f"{self.a:.3g} x^-alpha, alpha = {self.alpha:.3f} [{low:.3f}, {high:.3f}]"
        of_seeds = "" if np.isnan(self.of_seeds) else f", of seeds {self.of_seeds:.0%}"
        return f"{text}; scatter {self.scatter:.0%}{of_seeds}"


def fit(x: ArrayLike, y: ArrayLike) -> PowerLaw:
    """The power law of at least three runs, x and y > 0, of at least two different x."""
    u, v = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    (slope, intercept), covariance = np.polyfit(u, v, 1, cov=True)
    margin = student(len(u) - 2) * np.sqrt(covariance[0, 0])
    scatter = np.sqrt(((v - slope * u - intercept) ** 2).sum() / (len(u) - 2))
    within = [v[u == size] - v[u == size].mean() for size in np.unique(u)]
    freedom = len(u) - len(within)
    of_seeds = np.sqrt((np.concatenate(within) ** 2).sum() / freedom) if freedom else np.nan
    return PowerLaw(*map(float, (np.exp(intercept), -slope, margin, scatter, of_seeds)))


def sizes(row: Row) -> tuple[int, int, int]:
    """What `NAMES` names, of a run. Its model is built without memory for its weights."""
    run = Run.open(row["run"], "runs")
    with torch.device("meta"):
        vocab_size = Tokenizer.load(run.tokenizer_folder).vocab_size
        model = GPT(read_config(run, RunConfig).model, vocab_size)
    inner = [*model.blocks.parameters(), *model.final_norm.parameters()]
    without_embeddings = sum(parameter.numel() for parameter in inner)
    return model.n_parameters, without_embeddings, model.flops_per_token * row["tokens"]


def main(paths: Sequence[Path]) -> None:
    rows = read_finished(paths)
    above = [row for row in rows if row.get("floor_bpb") and row["val_bpb"] > row["floor_bpb"]]
    if len({row["parameters"] for row in above}) < MIN_SIZES:
        raise UserError(
            f"runs: have fewer than {MIN_SIZES} numbers of parameters with a loss above a known "
            "floor; give more runs on tales"
        )
    if len({*scored_texts(above)}) > 1:
        raise UserError("runs: were not all scored on the same text; give runs that were")
    if left_out := len(rows) - len(above):
        print(f"Left out, since their loss is not above a known floor: {left_out} runs")
    print("Bits per byte above the floor, with the 95% interval of alpha:")
    loss = [row["val_bpb"] - row["floor_bpb"] for row in above]
    for name, x in zip(NAMES, zip(*map(sizes, above), strict=True), strict=True):
        print(printable(f"{name}: {fit(x, loss)}"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How the loss falls with the size of the model.")
    parser.add_argument("runs", type=Path, nargs="+", help="runs, or folders that contain runs")
    with one_line_errors():
        main(parser.parse_args().runs)
