"""Compare finished runs, seed by seed: `python compare.py runs/sweep_* by=model.qk_norm`."""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import sys
from dataclasses import dataclass

from common.errors import UserError, print, printable
from common.settings import Values, build
from configs.cli import run_script
from inference.comparison import compare, compare_by, differing, group, summary_lines, target_loss
from inference.results import read_finished


@dataclass
class CompareConfig:
    """The settings of compare.py; configs/compare.yaml explains them."""

    runs: list[str]
    by: str | None
    loss: float | None

    def __post_init__(self) -> None:
        if not self.runs or not all(isinstance(path, str) for path in self.runs):
            raise ValueError(
                "runs: is not a list of folders; give some: python compare.py runs/sweep_*"
            )


def main(values: Values) -> None:
    config = build(CompareConfig, values)
    rows = read_finished(config.runs)
    if config.by is not None and "," in config.by:
        raise UserError("by: takes one setting; give one, such as by=model.qk_norm")
    known = differing(rows)
    if texts := [name for name in known if name.startswith("data.")]:
        print(
            f"note: {', '.join(texts)}: the runs were not scored on the same text, so that their "
            "losses cannot be compared",
            file=sys.stderr,
        )
    if config.by is not None and config.by not in known:
        raise UserError(
            f"by: {config.by} does not differ between these runs; "
            + (f"choose one of {', '.join(known)}" if known else "leave it out")
        )
    groups = group(rows)
    loss = target_loss(groups) if config.loss is None else config.loss
    differences = compare(groups) if config.by is None else compare_by(rows, config.by)
    if config.by is not None and not any(one.n_seeds for one in differences):
        raise UserError(
            f"by: no two runs differ in {config.by} alone; leave it out, or train runs that do"
        )
    for line in summary_lines(groups, differences, loss):
        print(printable(line))


if __name__ == "__main__":
    run_script("compare", main, CompareConfig)
