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
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

from common.errors import UserError, check_range, pluralize, print_note, printable, refusal
from common.settings import Values, build
from data.corpora import open_corpus
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
    if "LOCAL_RANK" in os.environ:
        raise UserError("verdict.py: starts its runs itself; run it without torchrun")
    say = partial(print, file=sys.stderr if config.json else sys.stdout, flush=True)
    of_base, of_idea = map(open_side, divide(config.idea, config.base))
    if config.against is None:
        check_sides(of_base, of_idea)
    text = open_corpus(of_idea.data).fingerprint()
    if config.against is None:
        base, idea = Runs(of_base, text, "base"), Runs(of_idea, text, *of_idea.beyond(of_base))
        seeds = [*range(config.seeds_from, config.seeds_from + config.max_pairs)]
    else:
        idea = Runs(of_idea, text, "base")
        base = EarlierRuns(config.against, idea)
        seeds = sorted(seed for seed in base.rows if seed >= config.seeds_from)[: config.max_pairs]
        if not seeds:
            raise UserError(f"against: {config.against} has no seed from seeds_from on; lower it")
    sides = dict(zip(NAMES, (base, idea), strict=True))
    interrupt_on_signals()
    for name, runs in sides.items():
        say(printable(f"{name}: {runs.folder}"))
    say("Compared: the final validation loss, in bits per byte. A run in training has a train.log")
    pairs, found = train_pairs(sides, seeds, config.margin, say)
    curves: str | None = str(VERDICT / "curves")
    try:
        folders = {runs.folder.name: runs.folders(pairs) for runs in sides.values()}
        write_curves(VERDICT / "curves", folders)
    except OSError as error:  # the verdict is known without them
        print_note(f"note: the mean curves were not written: {refusal(error)}")
        curves = None
    failed = {
        name: [seed for seed in pairs if runs.rows[seed] is None] for name, runs in sides.items()
    }
    if config.json:
        more = {"diverged": failed, "curves": curves}
        print(json.dumps(as_json(found, pairs, sides) | more, allow_nan=False))
        return
    if curves:
        say(f"Mean curves of the seeds: tensorboard --logdir {curves}")
    diverged = [
        f"; the {name} diverged with seed {', '.join(map(str, which))}, counted as {DIVERGED:g} "
        "bits per byte"
        for name, which in failed.items()
        if which
    ]
    say(in_words(found, len(pairs)) + "".join(diverged))


def train_pairs(
    sides: Mapping[str, Runs], seeds: Sequence[int], margin: float, say: Callable[[str], object]
) -> tuple[dict[int, Pair], Judgement]:
    """The pairs by seed, until a verdict is known, and what is known after them; says what each
    pair adds."""
    pairs: dict[int, Pair] = {}
    base, idea = (sides[name] for name in NAMES)
    for seed in seeds:
        pairs[seed] = (base.row(seed), idea.row(seed))
        check_comparable(pairs, sides)
        found = judge(differences([*pairs.values()]), margin)
        losses = " and ".join("diverged" if not row else f"{loss(row):.4f}" for row in pairs[seed])
        line = f"pair {len(pairs)}, seed {seed}: {losses}; so far {found}"
        if found.verdict:
            say(line)
            break
        say(line + time_left((base, idea), seeds[len(pairs) :]))
    return pairs, found


def as_json(
    found: Judgement, pairs: Mapping[int, Pair], sides: Mapping[str, Runs]
) -> dict[str, Any]:
    """The line of json=true, without `diverged` and `curves`."""
    return {
        "verdict": found.verdict,
        "difference": found.mean,
        "low": found.low if math.isfinite(found.low) else None,
        "high": found.high if math.isfinite(found.high) else None,
        "pairs": len(pairs),
        "margin": found.margin,
        "bpb": {
            name: mean(loss(runs.rows[seed]) for seed in pairs) for name, runs in sides.items()
        },
        "runs": {name: str(runs.folder) for name, runs in sides.items()},
    }


def loss(row: Row | None) -> float:
    return float(row["val_bpb"]) if row else DIVERGED


def differences(pairs: Sequence[Pair]) -> list[float]:
    """Of the losses, idea minus base, as shares of the mean loss of the base."""
    losses = [(loss(base), loss(idea)) for base, idea in pairs]
    scale = mean(base for base, _ in losses) or 1.0  # a text of one letter can have a loss of 0
    return [(idea - base) / scale for base, idea in losses]


def check_comparable(pairs: Mapping[int, Pair], sides: Mapping[str, Runs]) -> None:
    """Raise UserError unless the losses can be compared."""
    for seed, pair in pairs.items():
        if not any(pair):
            raise UserError(
                f"base: training diverged with seed {seed} on both sides; lower optimizer.lr of "
                "both"
            )
    if len({*scored_texts([row for pair in pairs.values() for row in pair if row])}) > 1:
        folders = " and ".join(str(runs.folder) for runs in sides.values())
        raise UserError(
            f"data: not all runs in {folders} were scored on the same text; if it has changed, "
            "move these folders away"
        )


def time_left(sides: Sequence[Runs], seeds: Sequence[int]) -> str:
    """How long the runs of the remaining seeds take that are not there, if it is known."""
    seconds = [taken for runs in sides for taken in runs.seconds]
    missing = sum(not runs.is_finished(seed) for runs in sides for seed in seeds)
    return f"; at most {duration(mean(seconds) * missing)} left" if seconds and missing else ""


def in_words(found: Judgement, n_pairs: int) -> str:
    """The verdict."""
    pairs = pluralize(n_pairs, "pair")
    if found.verdict is None:
        return f"not known after {pairs}: {found.text}"
    margin = f"{100 * found.margin:g}%"
    if found.verdict == "no difference":
        return f"no difference of more than {margin}: {found.text}, {pairs}"
    least, most = sorted(map(abs, (found.low, found.high)))
    small = f", less than the margin of {margin}" if most <= found.margin else ""
    sizes = f"{100 * least:.2f} to {most:.2%}"
    return f"{found.verdict} by {abs(found.mean):.2%} ({sizes}){small}, {pairs}"


if __name__ == "__main__":
    run_script("verdict", main, VerdictConfig)
