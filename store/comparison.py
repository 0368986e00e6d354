"""Comparing runs: groups that differ in nothing but the seed, and the difference between settings,
paired by seed, with its interval. Losses over different tokens are not compared."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from store.results import Row
from tensorboard_attention.naming import kind_of

# What divides runs, beside the settings of the groups of the config; and what does not, of these.
ALSO, UNIMPORTANT = ("init_from",), ("observe.", "data.cache_dir")
ONCE = "differences, with 95% intervals for looking once; verdict.py adds pairs until it knows:"
# Student's t at 0.975 with 1 to 30 degrees of freedom; with more, 1.96 + 2.47 / n is within 0.001.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Scored(NamedTuple):
    """Which tokens a loss is over. sha256: of the tokens of both splits; text: the fingerprint of
    their text, which is the same with other tokenizers; n_tokens: of every evaluation."""

    sha256: str | None
    text: str | None
    context_length: int | None
    is_whole: bool
    n_tokens: tuple[int | None, ...]

    def is_same(self, other: Scored) -> bool:
        """Whether the two losses are over the same text."""
        are_whole = self.is_whole and other.is_whole
        if self.sha256 is not None and self.sha256 == other.sha256:
            # What is a part of a split depends on its windows.
            same_windows = self.context_length == other.context_length
            return self.n_tokens == other.n_tokens and (are_whole or same_windows)
        return are_whole and self.text is not None and self.text == other.text


class Group(NamedTuple):
    """Runs with the same settings; label: those that differ between groups; text: the number of the
    text that their losses are over (`scored_texts`)."""

    label: str
    rows: list[Row]
    text: int = 0

    @property
    def loss(self) -> float:
        return mean(per_seed(self.rows, "val_bpb"))


class Difference(NamedTuple):
    """How much larger the loss of one setting is than that of another, in bits per byte: the mean
    over the seeds that both have.

    margin: half of the interval that contains the true difference with a probability of 95%, if
        the differences of seeds are distributed normally (Student 1908); infinite for one seed.
    """

    group: str
    other: str
    bpb: float
    margin: float
    seeds: int

    @property
    def is_noise(self) -> bool:
        """Whether the sign of the difference is open."""
        return abs(self.bpb) <= self.margin

    def __str__(self) -> str:
        text = f"{self.group} against {self.other}: "
        if not self.seeds:
            return f"{text}no seed in common, with all else and the scored text equal"
        text += f"{self.bpb:+.4f} bpb"
        if self.seeds < 2:
            return f"{text}, 1 seed: no interval; train more seeds"
        low, high = self.bpb - self.margin, self.bpb + self.margin
        noise = ": within seed noise" if self.is_noise else ""
        return f"{text} [{low:+.4f}, {high:+.4f}], {self.seeds} seeds{noise}"


def differing(rows: Sequence[Row]) -> list[str]:
    """The names of the settings that are not the same in all runs, without the seed."""
    names = dict.fromkeys(name for row in rows for name in row if is_setting(name))
    missing = object()
    return [name for name in names if len({repr(row.get(name, missing)) for row in rows}) > 1]


def is_setting(name: str) -> bool:
    """Whether a name in a row is that of a setting that can change the result, but the seed."""
    return name in ALSO or ("." in name and not name.startswith(UNIMPORTANT))


def settings_sha256(row: Row) -> str:
    """A checksum of the settings in a row, or of settings by name, that divide groups."""
    found = sorted(f"{name}={value!r}" for name, value in row.items() if is_setting(name))
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def _shown(name: str, value: Any, beside: Iterable[str]) -> str:
    """A setting with its value, by the last part of its name unless another `beside` has it too."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    last = name.rpartition(".")[2]
    is_clear = [other.rpartition(".")[2] for other in beside].count(last) < 2
    return f"{last if is_clear else name}={text}"


def scored_texts(rows: Sequence[Row], in_training: bool = False) -> list[int]:
    """For each row the number of the text that its loss is over: rows with the same number were
    scored on the same text. in_training: of the losses in `curve`, which can be over a part."""
    scored = [_scored(row, in_training) for row in rows]
    texts: list[list[Scored]] = []
    for one in dict.fromkeys(scored):
        same = [text for text in texts if any(one.is_same(other) for other in text)]
        texts = [text for text in texts if text not in same]
        texts.append([*(other for text in same for other in text), one])
    numbers = {one: number for number, text in enumerate(texts) for one in text}
    return [numbers[one] for one in scored]


def _scored(row: Row, in_training: bool) -> Scored:
    points = row["curve"] if in_training else [row]
    part = row.get(f"trainer.{'' if in_training else 'final_'}eval_tokens", "all")
    return Scored(
        row.get("tokens_sha256"),
        row.get("text"),
        row.get("model.context_length"),
        str(part) in ("all", "0"),
        tuple(dict.fromkeys(point.get("val_tokens") for point in points)),
    )


def group(rows: Sequence[Row]) -> list[Group]:
    """Runs that differ in nothing but the seed, and were scored on the same text: by text, the
    lowest mean loss first."""
    return _grouped(rows, differing(rows), scored_texts(rows))


def _grouped(rows: Sequence[Row], names: Sequence[str], texts: Sequence[int]) -> list[Group]:
    """Runs with the same values of some settings and the same text, the lowest mean loss first."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row, text in zip(rows, texts, strict=True):
        label = ", ".join(_shown(name, row.get(name), names) for name in names)
        found.setdefault((label or "all runs", text), []).append(row)
    counts = Counter(label for label, _ in found)
    groups = [
        Group(f"{label}, text {text + 1}" if counts[label] > 1 else label, members, text)
        for (label, text), members in found.items()
    ]
    return sorted(groups, key=lambda group: (group.text, group.loss))


def compare(groups: Sequence[Group]) -> list[Difference]:
    """Each group against the first that was scored on the same text."""
    first: dict[int, Group] = {}
    for group in groups:
        first.setdefault(group.text, group)
    return [
        _difference(group, first[group.text], ())
        for group in groups
        if group is not first[group.text]
    ]


def compare_by(rows: Sequence[Row], names: Sequence[str]) -> list[Difference]:
    """The values of the settings `names` against those with the lowest mean loss, over pairs of
    runs that have the seed, all other settings and the scored text in common."""
    rest = [other for other in differing(rows) if other not in names]
    rows = [{**row, "text": text} for row, text in zip(rows, scored_texts(rows), strict=True)]
    first, *others = _grouped(rows, names, [0] * len(rows))
    return [_difference(other, first, [*rest, "text"]) for other in others]


def notes(rows: Sequence[Row]) -> list[str]:
    """What is not compared, and why."""
    found = []
    if len({*scored_texts(rows)}) > 1:
        beginnings = ("data.", "trainer.final_eval_tokens")
        names = [name for name in differing(rows) if name.startswith(beginnings)]
        found.append(
            f"{', '.join(names)}{': ' * bool(names)}the runs were not scored on the same text; "
            "only losses over the same text are compared"
        )
    if not _have_equal_curves(rows):
        name = "trainer.eval_tokens"
        found.append(
            f"{name + ': ' if name in differing(rows) else ''}the evaluations during training did "
            "not score the same text, so that the times to a loss are left out"
        )
    return found


def _have_equal_curves(rows: Sequence[Row]) -> bool:
    """Whether all losses of all curves are over the same text."""
    rows = [row for row in rows if row["curve"]]
    is_one = all(len(_scored(row, True).n_tokens) == 1 for row in rows)
    return is_one and len({*scored_texts(rows, in_training=True)}) < 2


def _difference(group: Group, other: Group, equal: Sequence[str]) -> Difference:
    """Over pairs of runs with the same seed and equal settings. Those of one seed are not
    independent, so that each seed counts once."""
    ours, theirs = (means(runs.rows, "val_bpb", equal) for runs in (group, other))
    pairs: dict[Any, list[float]] = {}
    for key in ours.keys() & theirs.keys():
        pairs.setdefault(key[0], []).append(ours[key] - theirs[key])
    seeds = [mean(found) for found in pairs.values()]
    bpb = mean(seeds) if seeds else math.nan
    return Difference(group.label, other.label, bpb, margin(seeds), len(seeds))


def means(rows: Sequence[Row], name: str, equal: Sequence[str]) -> dict[tuple[Any, ...], float]:
    """The mean of a result of the runs with the same seed and values of some settings, by these."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row.get(name) is not None:
            key = (row["seed"], *(repr(row.get(setting)) for setting in equal))
            found.setdefault(key, []).append(float(row[name]))
    return {key: mean(values) for key, values in found.items()}


def per_seed(rows: Sequence[Row], name: str) -> list[float]:
    """One value per seed: the mean of its runs, which differ less than two seeds do."""
    return [*means(rows, name, ()).values()]


def margin(values: Sequence[float]) -> float:
    """Half of the 95% interval of the mean of values that are distributed normally."""
    if len(values) < 2:
        return math.inf
    freedom = len(values) - 1
    student = STUDENT[freedom - 1] if freedom <= len(STUDENT) else 1.96 + 2.47 / freedom
    return student * stdev(values) / math.sqrt(len(values))


def seconds_to(curve: Iterable[Row], bpb: float) -> float | None:
    """Seconds of training until the validation loss is `bpb`, between two evaluations on a line;
    None if it never is."""
    before: Row | None = None
    for point in curve:
        if "seconds" not in point:  # earlier code did not log it
            return None
        if point["val_bpb"] <= bpb:
            if before is None:
                return float(point["seconds"])
            share = (before["val_bpb"] - bpb) / (before["val_bpb"] - point["val_bpb"])
            return float(before["seconds"] + share * (point["seconds"] - before["seconds"]))
        before = point
    return None


def roles(rows: Sequence[Row]) -> str:
    """How many heads of the runs have which role, without its percentage and token, the most
    frequent first; empty if that was not measured."""
    kinds = [kind_of(role) for row in rows for role in row.get("heads", {}).values()]
    return ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).most_common())


def target_loss(groups: Sequence[Group], loss: float | None = None) -> float | None:
    """The loss to which times are measured: that given, or the lowest validation loss that all runs
    have reached. None if the losses of their curves are not over the same text."""
    rows = [row for group in groups for row in group.rows]
    if not _have_equal_curves(rows):
        return None
    lowest = [min(point["val_bpb"] for point in row["curve"]) for row in rows if row["curve"]]
    return max(lowest, default=None) if loss is None else loss


def summary_lines(
    groups: Sequence[Group], differences: Sequence[Difference], loss: float | None
) -> list[str]:
    """A table with a line for each group, and a line for each difference. loss: to which the times
    are measured; None: no times."""
    heads = ["settings", "seeds", "bits per byte ± sd", "above the floor", "seconds", "parameters"]
    lines = [heads, *map(_cells, groups)]
    if loss is not None:
        times = [f"seconds to {loss:.4f}", *(_times(found, loss) for found in groups)]
        for line, time in zip(lines, times, strict=True):
            line.insert(4, time)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for number, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    texts = [(group.label, roles(group.rows)) for group in groups]
    if of_heads := [f"{label}: heads: {text}" for label, text in texts if text]:
        aligned += ["", *of_heads]
    if differences:
        aligned += ["", ONCE, *map(str, differences)]
    return aligned


def _cells(group: Group) -> list[str]:
    with_floor = [row for row in group.rows if row.get("floor_bpb")]
    above = [row | {"above": row["val_bpb"] / row["floor_bpb"] - 1} for row in with_floor]
    losses = per_seed(group.rows, "val_bpb")
    return [
        group.label,
        str(len(losses)),
        spread(losses, ".4f"),
        spread(per_seed(above, "above"), ".2%"),
        spread(per_seed(group.rows, "seconds"), ".1f"),
        f"{group.rows[0]['parameters']:,}",
    ]


def _times(group: Group, loss: float) -> str:
    rows = [row | {"reached": seconds_to(row["curve"], loss)} for row in group.rows]
    n_reached = sum(row["reached"] is not None for row in rows)
    missed = f" ({n_reached} of {len(rows)} runs)" if n_reached < len(rows) else ""
    return spread(per_seed(rows, "reached"), ".1f") + missed


def spread(values: Sequence[float], form: str) -> str:
    """The mean and the standard deviation; empty without values."""
    if not values:
        return ""
    deviation = f" ± {stdev(values):{form}}" if len(values) > 1 else ""
    return f"{mean(values):{form}}{deviation}"
