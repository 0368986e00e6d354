"""The report of compare.py: one HTML file with curves, what differs, roles and twins of heads."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from inference.comparison import Difference, Group, formed, table
from inference.results import TAG, Row, open_log
from inference.scaling import PowerLaw, Scaling
from tensorboard_attention.twins import Head, match_logged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto }
th, td { border-bottom: 1px solid #ccc; padding: .3rem .7rem; text-align: right }
th:first-child, td:first-child { text-align: left }
svg { height: auto; max-width: 100% }
"""
MOST_TWINS = 8  # runs whose heads are matched


def report(
    groups: Sequence[Group], differences: Sequence[Difference], loss: float, found: Scaling
) -> str:
    """The text of the file."""
    parts = [
        "<h1>Comparison of runs</h1>",
        _table(table(groups, loss)),
        *(f"<p>{escape(str(one))}</p>" for one in differences),
        "<h2>Validation loss</h2><p>Bits per byte: mean, and from the lowest to the highest.</p>",
        curves(groups),
        *_scaling(found),
        *_roles(groups),
        *_formed(groups),
        *_twins([row for one in groups for row in one.rows]),
    ]
    head = f'<meta charset="utf-8"><title>Comparison of runs</title><style>{STYLE}</style>'
    return f"<!DOCTYPE html>\n<html lang='en'>{head}\n" + "\n".join(parts) + "\n</html>\n"


def _formed(groups: Sequence[Group]) -> list[str]:
    """When heads formed, of groups whose maps were logged."""
    found = [(one.label, formed(one.rows)) for one in groups]
    words = [f"<p>{escape(label)}: {escape(text)}.</p>" for label, text in found if text]
    return ["<h2>Heads</h2>", *words] if words else []


def _table(lines: Sequence[Sequence[str]]) -> str:
    rows = [
        "".join(f"<{tag}>{escape(text)}</{tag}>" for text in line)
        for tag, line in zip(["th"] + ["td"] * (len(lines) - 1), lines, strict=True)
    ]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def curves(groups: Sequence[Group]) -> str:
    """The validation losses over the steps, as SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for one in groups:
        runs = [{point["step"]: point["val_bpb"] for point in row["curve"]} for row in one.rows]
        steps = sorted(set.intersection(*map(set, runs)))
        values = np.array([[run[step] for step in steps] for run in runs])
        axes.plot(steps, values.mean(0), label=one.label.replace("$", r"\$"))
        axes.fill_between(steps, values.min(0), values.max(0), alpha=0.2)
    floors = {row["floor_bpb"] for one in groups for row in one.rows if row.get("floor_bpb")}
    if len(floors) == 1:
        axes.axhline(floors.pop(), color="grey", linestyle="dotted", label="floor")
    axes.set(xlabel="step", ylabel="bits per byte")
    axes.legend()
    return _svg(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _scaling(found: Scaling) -> list[str]:
    """The power laws, in words and as SVG."""
    if not (lines := found.lines()):
        return []
    words = (f"<p>{escape(line)}</p>" for line in lines[1:])
    return ["<h2>Loss by size</h2>", *words, *map(power_law, found.laws)]


def power_law(law: PowerLaw) -> str:
    """Runs, law and the 95% interval of the law, on logarithmic axes, as SVG."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axes = figure.subplots()
    x = np.geomspace(law.x.min(), law.x.max(), 50)
    middle, low, high = law.line(x)
    axes.loglog(law.x, law.y, "o", alpha=0.6)
    axes.plot(x, middle, color="C1")
    axes.fill_between(x, low, high, color="C1", alpha=0.2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set(xlabel=law.of, ylabel="bits per byte above the floor")
    axes.set_title(f"alpha = {law.alpha:.3f} ± {law.margin:.3f}")
    return _svg(figure)


def _roles(groups: Sequence[Group]) -> list[str]:
    """What is left to learn, by role, at the last evaluation."""
    last = [[row["curve"][-1] for row in one.rows if row["curve"]] for one in groups]
    roles = dict.fromkeys(
        name for points in last for point in points for name in point if "/" in name
    )
    if not roles:
        return []
    lines = [["at the end", *(one.label for one in groups)]]
    for role in roles:
        found = [[point[role] for point in points if role in point] for points in last]
        lines.append([role, *(f"{mean(values):.2f}" if values else "" for values in found)])
    return ["<h2>Loss by what comes next</h2>", _table(lines)]


def _twins(rows: Sequence[Row]) -> list[str]:
    """The twins of the heads of the first run in the others, if they logged maps of one text."""
    logged = [(row["run"], maps) for row in rows[:MOST_TWINS] if (maps := _last_maps(row["run"]))]
    found: dict[str, dict[Head, str]] = {}
    for run, maps in logged[1:]:
        with suppress(ValueError):  # of another text
            twins = match_logged(logged[0][1], maps)
            found[run] = {one.head: f"{_name(one.twin)} ({one.overlap:.2f})" for one in twins}
    if not found:
        return []
    lines = [[f"head of {Path(logged[0][0]).name}", *(Path(run).name for run in found)]]
    for head in sorted(set().union(*found.values())):
        lines.append([_name(head), *(twins.get(head, "") for twins in found.values())])
    return ["<p>Twins, with the overlap of their attention:</p>", _table(lines)]


def _name(head: Head) -> str:
    return f"L{head[0]}H{head[1]}"


def _last_maps(run: str) -> tuple[Any, bytes] | None:
    """The maps that a run logged last: what their header says, and the data."""
    index = open_log(Path(run))
    steps = index.steps().get(".", {}).get(TAG)
    if not steps:
        return None
    header, data = index.maps(".", TAG, steps[-1])
    return json.loads(header), data
