"""Judge an idea by pairs of runs with equal seeds: `python verdict.py optimizer.beta2=0.99`.

Trains the base and the idea with one seed after the other, until their difference in the final
validation loss (bits per byte) is known, and prints a line for each pair, and the verdict. The
interval of the difference holds however often one looks (store/judging.py). Runs are kept under
runs/verdict/, and found again by settings, seed and code. With json=true, the only line on standard
output has

    verdict     "better", "worse", "no difference", or null if it is not known
    difference  of the losses, idea minus base, as a share of the base's: the mean over the pairs
    low, high   the interval of the true difference; null before the fourth pair
    pairs       their number
    margin      as given
    bpb         the mean losses in bits per byte, of "base" and "idea"
    diverged    the seeds of the runs that diverged, of "base" and "idea"
    runs        the folders of the runs, of "base" and "idea"
    curves      the folder of the mean curves, which TensorBoard shows

Exit status 0 whatever the verdict; 2 for a mistake in the settings, and if a run cannot be trained;
130 if it was stopped, after which the same command continues.
"""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

from common.errors import UserError, check_range, pluralize, print, printable
from common.settings import Values, build
from launch.cli import run_script
from launch.idea import check_sides, divide, open_side
from launch.pairs import EarlierRuns, Runs
from launch.sweep import interrupt_on_signals
from observe.curves import write_curves
from observe.terminal import duration
from store.comparison import scored_texts
from store.judging import MIN_PAIRS, Judgement, judge
from store.results import Row
from store.run import VERDICT

Pair = tuple[Row | None, Row | None]  # base and idea; None for a run that diverged
NAMES = ("base", "idea")
DIVERGED = 8.0  # bits per byte that a run which diverged counts as: those of guessing


@dataclass
class VerdictConfig:
    """The settings of verdict.py; configs/verdict.yaml explains them."""

    idea: list[str]
    base: str | None
    against: str | None
    margin: float
    max_pairs: int
    seeds_from: int
    json: bool

    def __post_init__(self) -> None:
        check_range("margin", self.margin, 0, below=1)
        check_range("max_pairs", self.max_pairs, MIN_PAIRS, 100)
        check_range("seeds_from", self.seeds_from, 0, 2**62)
        if not all(isinstance(setting, str) for setting in self.idea):
            raise ValueError("idea: give its settings as they are, without idea=")


def main(values: Values) -> None:
    config = build(VerdictConfig, values)
    say = partial(print, file=sys.stderr if config.json else sys.stdout, flush=True)
    of_base, of_idea = map(open_side, divide(config.idea, config.base))
    if config.against is None:
        check_sides(of_base, of_idea)
        base, idea = Runs(of_base, "base"), Runs(of_idea, *of_idea.beyond(of_base))
        seeds = [*range(config.seeds_from, config.seeds_from + config.max_pairs)]
    else:
        idea = Runs(of_idea, "base")
        base = EarlierRuns(config.against, idea)
        seeds = sorted(seed for seed in base.rows if seed >= config.seeds_from)[: config.max_pairs]
        if not seeds:
            raise UserError(f"against: {config.against} has no seed from seeds_from on; lower it")
    interrupt_on_signals()
    for name, runs in zip(NAMES, (base, idea), strict=True):
        say(printable(f"{name}: {runs.folder}"))
    say("Compared: the final validation loss, in bits per byte")
    pairs: list[Pair] = []
    for seed in seeds:
        pairs.append((base.row(seed), idea.row(seed)))
        check_pairs(pairs, seed, base, idea)
        found = judge(differences(pairs), config.margin)
        line = f"pair {len(pairs)}, seed {seed}: {' and '.join(map(loss_text, pairs[-1]))}; "
        line += progress(found, len(pairs))
        if found.verdict:
            say(line)
            break
        say(line + time_left((base, idea), seeds[len(pairs) :]))
    seeds = seeds[: len(pairs)]
    curves = VERDICT / "curves"
    write_curves(curves, {runs.folder.name: runs.folders(seeds) for runs in (base, idea)})
    if config.json:
        print(json.dumps(as_json(config, found, pairs, seeds, (base, idea)), allow_nan=False))
        return
    say(printable(f"Mean curves of the seeds: tensorboard --logdir {curves}"))
    say(in_words(found, len(pairs)) + failures(pairs, seeds))


def differences(pairs: Sequence[Pair]) -> list[float]:
    """Of the losses, idea minus base, as shares of the mean loss of the base."""
    losses = [(loss(base), loss(idea)) for base, idea in pairs]
    scale = mean(base for base, _ in losses) or 1.0  # a text of one letter can have a loss of 0
    return [(idea - base) / scale for base, idea in losses]


def loss(row: Row | None) -> float:
    return DIVERGED if row is None else float(row["val_bpb"])


def loss_text(row: Row | None) -> str:
    return "diverged" if row is None else f"{row['val_bpb']:.4f}"


def check_pairs(pairs: Sequence[Pair], seed: int, base: Runs, idea: Runs) -> None:
    """Raise UserError unless the losses can be compared."""
    if pairs[-1] == (None, None):
        raise UserError(
            f"base: training diverged with seed {seed} on both sides; lower optimizer.lr of both"
        )
    if len({*scored_texts([row for pair in pairs for row in pair if row])}) > 1:
        raise UserError(
            f"data: not all runs in {base.folder} and {idea.folder} were scored on the same text; "
            "if it has changed, move these folders away"
        )


def progress(found: Judgement, n_pairs: int) -> str:
    """What is known after some pairs, and what is open."""
    if n_pairs < MIN_PAIRS:
        return f"{found.mean:+.2%}, open before pair {MIN_PAIRS}"
    known = f"{found.mean:+.2%} {interval(found)}"
    return known if found.verdict else f"{known}, open: {' or '.join(found.possible)}"


def interval(found: Judgement) -> str:
    return f"({found.low:+.2%} to {found.high:+.2%})"


def time_left(sides: Sequence[Runs], seeds: Sequence[int]) -> str:
    """How long the runs of the remaining seeds take that are not there, if it is known."""
    seconds = [taken for runs in sides for taken in runs.seconds]
    missing = sum(not runs.is_finished(seed) for runs in sides for seed in seeds)
    return f"; at most {duration(mean(seconds) * missing)} left" if seconds and missing else ""


def in_words(found: Judgement, n_pairs: int) -> str:
    """The verdict."""
    pairs, size = pluralize(n_pairs, "pair"), sorted(map(abs, (found.low, found.high)))
    match found.verdict:
        case None:
            return f"not known after {pairs}: {found.mean:+.2%} {interval(found)}"
        case "no difference":
            margin = f"no difference of more than {100 * found.margin:g}%"
            return f"{margin}: {found.mean:+.2%} {interval(found)}, {pairs}"
        case verdict:
            sizes = f"{100 * size[0]:.2f} to {size[1]:.2%}"
            return f"{verdict} by {abs(found.mean):.2%} ({sizes}), {pairs}"


def diverged(pairs: Sequence[Pair], seeds: Sequence[int]) -> dict[str, list[int]]:
    """The seeds whose runs diverged, by side."""
    return {
        name: [seed for seed, pair in zip(seeds, pairs, strict=True) if pair[side] is None]
        for side, name in enumerate(NAMES)
    }


def failures(pairs: Sequence[Pair], seeds: Sequence[int]) -> str:
    """What the verdict adds about runs that diverged."""
    return "".join(
        f"; the {name} diverged with seed {', '.join(map(str, which))}, counted as {DIVERGED:g} "
        "bits per byte"
        for name, which in diverged(pairs, seeds).items()
        if which
    )


def as_json(
    config: VerdictConfig,
    found: Judgement,
    pairs: Sequence[Pair],
    seeds: Sequence[int],
    sides: Sequence[Runs],
) -> dict[str, Any]:
    """What `json=true` prints."""
    return {
        "verdict": found.verdict,
        "difference": found.mean,
        "low": found.low if math.isfinite(found.low) else None,
        "high": found.high if math.isfinite(found.high) else None,
        "pairs": len(pairs),
        "margin": config.margin,
        "bpb": {name: mean(loss(pair[side]) for pair in pairs) for side, name in enumerate(NAMES)},
        "diverged": diverged(pairs, seeds),
        "runs": {name: str(runs.folder) for name, runs in zip(NAMES, sides, strict=True)},
        "curves": str(VERDICT / "curves"),
    }


if __name__ == "__main__":
    run_script("verdict", main, VerdictConfig)
