"""The results of finished runs, as rows: their settings, what they reached, and how."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from errors import UserError
from files import read_json, read_text
from tensorboard_attention.index import Index
from training.run import Run
from training.stored import flat, read_settings

MOST = 1 << 27  # bytes of metrics.jsonl
TAG, SCORE, FORMED = "attention", "induction", 0.5  # of the run's own probe

Row = dict[str, Any]


def results(paths: Iterable[str | Path]) -> list[Row]:
    """A row for each finished run in the folders `paths`, which are runs or contain runs.

    A row has the folder, "run"; all settings by their full names, such as "model.d_model"; what
    summary.json says, such as "val_bpb" and "seconds"; and

        curve      the evaluations: "step", "val_loss", "val_bpb", what was logged with them, such
                   as "excess/song", and "seconds" of training until then
        induction  the head that continues repeats best at the end: "head", its "score", and the
                   logged steps between which a head first had a score of half: "after" and "by";
                   None if none has, or if no maps were logged

    With pandas: `DataFrame(results(["runs"]))`. Raises UserError for a path without runs, and for a
    run that cannot be read.
    """
    return [_row(run) for run in find_runs(paths) if run.summary_file.exists()]


def find_runs(paths: Iterable[str | Path]) -> list[Run]:
    """The runs in the folders `paths`, finished or not, each once. Raises UserError for a path
    without any."""
    found: dict[Path, Run] = {}
    for path in map(Path, paths):
        configs = [path / "config.yaml"] if (path / "config.yaml").exists() else _below(path)
        runs = [Run.open(str(config.parent), "runs") for config in configs]
        if not runs:
            raise UserError(f"runs: {path} contains no run; give folders of runs")
        found |= {run.path.resolve(): run for run in runs}
    return [*found.values()]


def _below(path: Path) -> list[Path]:
    """The settings of all runs below a folder. runs/latest is one of them by another name."""
    files = path.rglob("config.yaml")
    hidden = (".hydra", "latest")
    return sorted(file for file in files if not {*file.relative_to(path).parts} & {*hidden})


def _row(run: Run) -> Row:
    settings = flat(read_settings(run.newest_settings_file))
    try:
        summary = read_json(run.summary_file)
        curve = [*_curve(run.path / "metrics.jsonl")]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{run.path}: cannot be read ({error}); leave it out") from error
    return {
        "run": str(run.path),
        **settings,
        **summary,
        "curve": curve,
        "induction": when_formed(run.path),
    }


def _curve(file: Path) -> Iterator[Row]:
    seconds = tokens = 0.0
    for line in read_text(file, MOST).splitlines():
        measured = json.loads(line)
        if "tokens_per_second" in measured:
            seconds += (measured["tokens"] - tokens) / measured["tokens_per_second"]
            tokens = measured["tokens"]
        elif "val_bpb" in measured:
            yield {**measured, "seconds": seconds}


def open_log(folder: Path) -> Index:
    """The attention maps that a run logged."""
    index = Index(str(folder))
    while not index.refresh():
        pass
    return index


def when_formed(folder: Path) -> Row | None:
    """When a head first had half of the score of induction, from the maps that a run logged."""
    index = open_log(folder)
    if TAG not in index.steps().get(".", {}):
        return None
    about, data = index.scores(".", TAG)
    if SCORE not in about["names"]:
        return None
    shape = (len(about["steps"]), len(about["names"]), sum(about["heads"]))
    scores = np.frombuffer(data, "<f4").reshape(shape)[:, about["names"].index(SCORE)]
    largest = np.nan_to_num(scores).max(1)
    if largest[-1] < FORMED:
        return None
    first = int(np.argmax(largest >= FORMED))
    best = int(np.nanargmax(scores[-1]))
    layers = [f"L{layer}H{head}" for layer, n in enumerate(about["heads"]) for head in range(n)]
    steps = [0, *about["steps"]]  # before its first logged step a run had begun
    return {
        "head": layers[best],
        "score": float(scores[-1, best]),
        "after": steps[first],
        "by": steps[first + 1],
    }
