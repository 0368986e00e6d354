"""Comparing runs: groups that differ in nothing but the seed, and the difference between settings,
paired by seed, with its interval."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from statistics import NormalDist, mean, stdev
from typing import Any, NamedTuple

from inference.results import Row

# What changes a run, beside the settings of its groups; and what does not, of these.
STARTS, UNIMPORTANT = ("init_from", "branch", "step", "hold_off"), ("observe.", "data.cache_dir")
# Student's t for two-sided intervals of 95%, from 1 degree of freedom on.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
           2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
           2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip


class Group(NamedTuple):
    """Runs with the same settings; label: those that differ between groups."""

    label: str
    rows: list[Row]

    def values(self, name: str) -> list[float]:
        """A result of each run that has it."""
        return [float(row[name]) for row in self.rows if row.get(name) is not None]


class Difference(NamedTuple):
    """How much larger the loss of one setting is than that of another, in bits per byte: over pairs
    of runs that have all else in common, the seed too.

    margin: half of the interval that contains the true difference with a probability of 95%, if
        the differences of pairs are distributed normally (Student 1908); infinite for one pair.
    """

    one: str
    other: str
    bpb: float
    margin: float
    n_pairs: int

    @property
    def is_noise(self) -> bool:
        """Whether the sign of the difference is open."""
        return abs(self.bpb) <= self.margin

    def __str__(self) -> str:
        pairs = f"{self.n_pairs} pair{'s' * (self.n_pairs > 1)} of the same seed"
        text = f"{self.one} against {self.other}: {self.bpb:+.4f} bpb"
        if self.n_pairs < 2:
            return f"{text}, {pairs}: no interval; train more seeds"
        low, high = self.bpb - self.margin, self.bpb + self.margin
        noise = ": within seed noise" if self.is_noise else ""
        return f"{text} [{low:+.4f}, {high:+.4f}], {pairs}{noise}"


def differing(rows: Sequence[Row]) -> list[str]:
    """The names of the settings that are not the same in all runs, without the seed."""
    names = dict.fromkeys(name for row in rows for name in row if _is_setting(name))
    missing = object()
    return [name for name in names if len({repr(row.get(name, missing)) for row in rows}) > 1]


def _is_setting(name: str) -> bool:
    return name in STARTS or ("." in name and not name.startswith(UNIMPORTANT))


def shown(name: str, value: Any) -> str:
    """A setting with its value, by the last part of its name."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{name.rpartition('.')[2]}={text}"


def group(rows: Sequence[Row]) -> list[Group]:
    """Runs that differ in nothing but the seed, the lowest mean loss first."""
    names = differing(rows)
    found: dict[str, list[Row]] = {}
    for row in rows:
        label = ", ".join(shown(name, row.get(name)) for name in names)
        found.setdefault(label or "all runs", []).append(row)
    groups = [Group(label, members) for label, members in found.items()]
    return sorted(groups, key=lambda one: mean(one.values("val_bpb")))


def compare(groups: Sequence[Group]) -> list[Difference]:
    """Each group against the first."""
    first, *others = groups
    return [_difference(other, first, _seed) for other in others if _pairs(other, first, _seed)]


def compare_by(rows: Sequence[Row], name: str) -> list[Difference]:
    """Each value of the setting `name` against its value with the lowest mean loss, over pairs of
    runs that have all other settings in common."""
    others = [other for other in differing(rows) if other != name]

    def rest(row: Row) -> Any:
        return (_seed(row), *(repr(row.get(other)) for other in others))

    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(shown(name, row.get(name)), []).append(row)
    groups = [Group(label, members) for label, members in found.items()]
    first, *groups = sorted(groups, key=lambda one: mean(one.values("val_bpb")))
    return [_difference(one, first, rest) for one in groups if _pairs(one, first, rest)]


def _seed(row: Row) -> Any:
    return row.get("seed")


def _pairs(one: Group, other: Group, key: Callable[[Row], Any]) -> list[float]:
    """The differences of the losses of runs with the same key."""
    others = {key(row): row["val_bpb"] for row in other.rows}
    return [row["val_bpb"] - others[key(row)] for row in one.rows if key(row) in others]


def _difference(one: Group, other: Group, key: Callable[[Row], Any]) -> Difference:
    pairs = _pairs(one, other, key)
    return Difference(one.label, other.label, mean(pairs), margin(pairs), len(pairs))


def margin(values: Sequence[float]) -> float:
    """Half of the 95% interval of the mean of values that are distributed normally."""
    if len(values) < 2:
        return math.inf
    freedom = len(values) - 1
    student = STUDENT[freedom - 1] if freedom <= len(STUDENT) else NormalDist().inv_cdf(0.975)
    return student * stdev(values) / math.sqrt(len(values))


def seconds_to(curve: Iterable[Row], bpb: float) -> float | None:
    """Seconds of training until the validation loss is `bpb`, between two evaluations on a line;
    None if it never is."""
    before: Row | None = None
    for point in curve:
        if point["val_bpb"] <= bpb:
            if before is None:
                return float(point["seconds"])
            share = (before["val_bpb"] - bpb) / (before["val_bpb"] - point["val_bpb"])
            return float(before["seconds"] + share * (point["seconds"] - before["seconds"]))
        before = point
    return None


def formed(rows: Sequence[Row]) -> str:
    """In how many of some runs an induction head formed, and between which steps."""
    heads = [row["induction"] for row in rows if row["induction"]]
    text = f"an induction head in {len(heads)} of {len(rows)}"
    if not heads:
        return text
    first, last = min(head["after"] for head in heads), max(head["by"] for head in heads)
    return f"{text}, formed between steps {first} and {last}"


def target_loss(groups: Sequence[Group]) -> float:
    """The lowest validation loss that all runs have reached."""
    curves = [row["curve"] for one in groups for row in one.rows if row["curve"]]
    return max((min(point["val_bpb"] for point in curve) for curve in curves), default=0.0)


def summary_lines(
    groups: Sequence[Group], differences: Sequence[Difference], loss: float
) -> list[str]:
    """A table with a line for each group, and a line for each difference."""
    heads, *lines = table(groups, loss)
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    aligned = [
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for number, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in [heads, *lines]
    ]
    if any("induction" in row for one in groups for row in one.rows):
        aligned += ["", *(f"{one.label}: {formed(one.rows)}" for one in groups)]
    return aligned + ([""] if differences else []) + [str(one) for one in differences]


def table(groups: Sequence[Group], loss: float) -> list[list[str]]:
    """The heads of the columns, and for each group its cells."""
    heads = ["settings", "seeds", "bits per byte", "above the floor", f"seconds to {loss:.4f}"]
    return [[*heads, "seconds", "parameters"], *(_cells(one, loss) for one in groups)]


def _cells(one: Group, loss: float) -> list[str]:
    above = [row["val_bpb"] / row["floor_bpb"] - 1 for row in one.rows if row.get("floor_bpb")]
    times = [seconds_to(row["curve"], loss) for row in one.rows]
    reached = [time for time in times if time is not None]
    missed = f" ({len(reached)} of {len(times)})" if len(reached) < len(times) else ""
    return [
        one.label,
        str(len(one.rows)),
        spread(one.values("val_bpb"), ".4f"),
        spread(above, ".2%"),
        spread(reached, ".1f") + missed,
        spread(one.values("seconds"), ".1f"),
        f"{one.rows[0]['parameters']:,}",
    ]


def spread(values: Sequence[float], form: str) -> str:
    """The mean and the standard deviation; empty without values."""
    if not values:
        return ""
    deviation = f" ± {stdev(values):{form}}" if len(values) > 1 else ""
    return f"{mean(values):{form}}{deviation}"
