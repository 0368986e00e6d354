"""Many seeds as one curve in TensorBoard: for each group of runs the mean of every scalar, and the
lowest and the highest value as a band in the Custom Scalars tab."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean

from common.errors import UserError
from common.files import file_name, patiently
from observe.tensorboard import TAGS, open_events
from store.results import read_measured
from store.run import Run

EVENTS = "events.out.tfevents.*"
Curve = dict[int, list[float]]  # the values of the runs, by step


def write_curves(folder: Path, groups: Mapping[str, Sequence[Path]]) -> list[Path]:
    """Write the curves of each group of runs into a folder in `folder`, named after the group, in
    the place of those that are there; returns these folders. Raises UserError if `folder` is a run,
    and OSError if the disk refuses."""
    if Run(folder).config_file.exists():
        raise UserError(f"curves: {folder} is a run; rename it, or compare other runs")
    names, places = [file_name(name) for name in groups], []
    of_groups = [curves_of(runs) for runs in groups.values()]
    tags = sorted(
        {tag for curves in of_groups for tag in curves},
        key=lambda tag: (tag != TAGS["val_bpb"], "loss/" not in tag, tag),
    )
    # All groups have the same charts: TensorBoard 2.21 loses what later runs add. It shows charts
    # with margins in the reverse order.
    bands = {tag: ["Margin", [tag, *_limits(tag)]] for tag in reversed(tags)}
    for number, (name, curves) in enumerate(zip(names, of_groups, strict=True)):
        is_first = names.index(name) == number
        place = folder / (name if is_first else f"{name}_{number + 1}")
        place.mkdir(parents=True, exist_ok=True)
        places.append(place)
        before = [*place.glob(EVENTS)]
        writer = open_events(place, purge_step=0)
        writer.add_custom_scalars({"Mean, lowest and highest of the seeds": bands})
        for tag, curve in curves.items():
            low, high = _limits(tag)
            for step, values in curve.items():
                writer.add_scalar(tag, mean(values), step)
                writer.add_scalar(low, min(values), step)
                writer.add_scalar(high, max(values), step)
        writer.close()
        for file in before:
            patiently(partial(file.unlink, missing_ok=True))
    return places


def _limits(tag: str) -> tuple[str, str]:
    """The tags of the lowest and the highest value, which TensorBoard sorts behind the others."""
    return f"seeds/{tag}/lowest", f"seeds/{tag}/highest"


def curves_of(runs: Sequence[Path]) -> dict[str, Curve]:
    """What runs measured, by the tags that TensorBoard has for it, at the steps that all have."""
    found: dict[str, Curve] = {}
    for run in runs:
        for line in read_measured(run):
            for name, value in line.items():
                tag = TAGS.get(name, name)
                if "/" in tag and isinstance(value, int | float) and math.isfinite(value):
                    found.setdefault(tag, {}).setdefault(line["step"], []).append(value)
    return {
        tag: {step: curve[step] for step in sorted(curve) if len(curve[step]) == len(runs)}
        for tag, curve in found.items()
    }
