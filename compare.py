"""Compare finished runs, seed by seed: `python compare.py runs/sweep_* by=model.qk_norm`.

Prints a table with a line for each group of runs that differ in nothing but the seed, and a line
for each difference between groups. With curves=true, writes the mean curves of each group for
TensorBoard. With json=true, prints one line of JSON and nothing else:

    loss         the validation loss in bits per byte, the time to which the table has; null if the
                 evaluations during training did not score the same text
    groups       each with label, seeds (their number), bpb (their mean), runs (their folders), and
                 text, a number: losses of groups that have the same are over the same text
    differences  each with group, other, bpb (group minus other), margin (half of the 95% interval;
                 null for one seed), seeds. Losses over different texts are not compared
    curves       their folder; null without curves=true

Notes and errors go to standard error. Exit status 0; 2 for a mistake in the settings, and if no run
can be compared.
"""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError, as_argument, as_mistake, print_note, printable
from common.files import patiently
from common.settings import Values, build
from launch.cli import run_script
from store.comparison import (
    Difference,
    Group,
    compare,
    compare_by,
    differing,
    group,
    notes,
    per_seed,
    summary_lines,
    target_loss,
)
from store.results import read_finished
from store.run import Run


@dataclass
class CompareConfig:
    """The settings of compare.py; configs/compare.yaml explains them."""

    runs: list[str]
    by: str | None
    loss: float | None
    curves: bool
    json: bool

    def __post_init__(self) -> None:
        if not self.runs or not all(isinstance(path, str) for path in self.runs):
            raise ValueError(
                "runs: is not a list of folders; give some: python compare.py runs/sweep_*"
            )


def main(values: Values) -> None:
    config = build(CompareConfig, values)
    rows = read_finished(config.runs)
    known = differing(rows)
    for note in notes(rows):
        print_note(f"note: {note}")
    varied = [name for name in known if name == config.by or name.startswith(f"{config.by}.")]
    if config.by is not None and not varied:
        raise UserError(
            f"by: {config.by} is no setting that differs between groups of these runs; "
            + (f"choose one of {', '.join(known)}" if known else "leave it out")
        )
    groups = group(rows)
    for one in groups:
        if len({Run(Path(row["run"])).code for row in one.rows}) > 1:
            print_note(f"note: {one.label}: its runs were trained by different code (code.json)")
    loss = target_loss(groups, config.loss)
    differences = compare(groups) if config.by is None else compare_by(rows, varied)
    curves = curves_beside(groups) if config.curves else None
    if config.json:
        found = as_json(groups, differences, loss) | {"curves": curves}
        print(json.dumps(found, allow_nan=False))
        return
    for line in summary_lines(groups, differences, loss):
        print(printable(line))
    if curves is not None:
        print()
        print(printable(f"Mean curves of the seeds: tensorboard --logdir {as_argument(curves)}"))


def curves_beside(groups: Sequence[Group]) -> str:
    """Write the mean curves of each group beside the runs, in the place of all that are there;
    returns their folder."""
    from observe.curves import EVENTS, write_curves  # and with it TensorBoard, which takes a second

    runs = {group.label: [Path(row["run"]) for row in group.rows] for group in groups}
    parents = [str(run.absolute().parent) for found in runs.values() for run in found]
    with as_mistake("curves: "):  # on Windows, for runs on several drives
        above = Path(os.path.commonpath(parents))
    here = Path.cwd()
    folder = (above.relative_to(here) if above.is_relative_to(here) else above) / "curves"
    written = write_curves(folder, runs)
    for earlier in {*folder.iterdir()} - {*written}:
        for file in earlier.glob(EVENTS):
            patiently(file.unlink)
    return str(folder)


def as_json(
    groups: Sequence[Group], differences: Sequence[Difference], loss: float | None
) -> dict[str, Any]:
    """What `json=true` prints."""
    return {
        "loss": finite(loss),
        "groups": [
            {
                "label": group.label,
                "seeds": len(per_seed(group.rows, "val_bpb")),
                "bpb": finite(group.loss),
                "runs": [row["run"] for row in group.rows],
                "text": group.text,
            }
            for group in groups
        ],
        "differences": [
            found._asdict() | {"bpb": finite(found.bpb), "margin": finite(found.margin)}
            for found in differences
        ],
    }


def finite(value: float | None) -> float | None:
    """None, which is null in JSON, for infinity and NaN."""
    return value if value is not None and math.isfinite(value) else None


if __name__ == "__main__":
    run_script("compare", main, CompareConfig)
