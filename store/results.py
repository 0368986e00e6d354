"""The results of finished runs, as rows: their settings, what they reached, and how."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import UserError, as_argument, print_note
from common.files import read_json, read_text, read_value
from common.settings import flat
from data.files import is_hidden
from store.run import Run, find_run
from store.settings import read_settings

if TYPE_CHECKING:
    from tensorboard_attention.index import Index
    from tensorboard_attention.naming import Names as Names

MAX_METRICS = 1 << 27  # bytes of metrics.jsonl
# What is compared: of summary.json, and of an evaluation.
COMPARED, POINT = ("val_bpb", "seconds", "tokens", "parameters"), ("step", "val_bpb")
TAG = "attention"  # of the run's own probe

Row = dict[str, Any]


def results(paths: str | Path | Iterable[str | Path]) -> list[Row]:
    """A row for each finished run in the folders `paths`, which are runs or contain runs.

    A row has the folder, "run"; all settings by their full names, such as "model.d_model"; what
    summary.json says, such as "val_bpb", which is over "val_tokens" tokens, and "seconds"; and

        tokens_sha256   of the tokens of both splits. The losses of two runs can be compared if they
                   are over the same text
        text       a fingerprint of the text of both splits
        curve      the evaluations: "step", "val_loss", "val_bpb", "val_tokens", of which there can
                   be fewer than in the last evaluation, "seconds" of training until then, and what
                   was logged with them, such as "roles/song"
        heads      what each head is called, such as {"L1H3": "copies 45%"}, if the run has
                   evidence.json

    With pandas: `DataFrame(results("runs"))`. Raises UserError for a path without runs, and for a
    run that cannot be read.
    """
    rows = map(read_row, find_runs(paths))
    return [row for row in rows if row is not None]


def read_finished(paths: Iterable[str | Path]) -> list[Row]:
    """`results`, but what has no run, is not finished or cannot be read is left out, with a note on
    standard error for each. Raises UserError if nothing is left."""
    folders: dict[Path, Path] = {}
    rows, reasons = [], []
    for path in paths:
        try:
            folders |= {folder.resolve(): folder for folder in find_runs(path)}
        except UserError as error:
            reasons.append(str(error))
    for folder in folders.values():
        try:
            if row := read_row(folder):
                rows.append(row)
            else:
                reasons.append(f"runs: {folder} is not finished; give finished runs")
        except UserError as error:
            reasons.append(str(error))
    if not rows:
        more = f" (and {len(reasons) - 1} more that cannot be compared)" if reasons[1:] else ""
        raise UserError(reasons[0] + more)
    for reason in reasons:
        print_note(f"note: left out: {reason.removeprefix('runs: ')}")
    return rows


def find_runs(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """The folders of the runs in the folders `paths`, finished or not, each once. Raises UserError
    for a path without any."""
    found: dict[Path, Path] = {}
    given = [paths] if isinstance(paths, str | Path) else paths
    for path in map(find_run, chain.from_iterable(map(_expanded, given))):
        configs = [path / "config.yaml"]
        if not configs[0].exists():  # an import that was killed is in a hidden folder
            below = path.rglob("config.yaml")
            configs = sorted(file for file in below if not is_hidden(file, path))
        if not configs:
            raise UserError(f"runs: {path} contains no run; give folders of runs")
        found |= {config.resolve(): config.parent for config in configs}
    return [*found.values()]


def _expanded(path: str | Path) -> list[str | Path]:
    """What a pattern stands for where the shell has not said it, as on Windows."""
    found = [] if os.path.lexists(path) else sorted(glob.glob(str(path)))  # noqa: PTH207
    return [*found] or [path]


def read_row(folder: Path) -> Row | None:
    """The row of the run in a folder; None if it is not finished. Raises UserError if it cannot be
    read."""
    run = Run.open(str(folder), "runs")
    settings = flat(read_settings(run.newest_settings_file))
    steps = settings.get("trainer.max_steps")  # none in a run that was converted
    if steps is None or not run.summary_file.exists():
        return None
    try:
        summary = read_json(run.summary_file)
        if summary.get("steps") != steps:
            return None
        curve = [line for line in read_measured(run.path) if "val_bpb" in line]
        needed = ((settings, ("seed",)), (summary, COMPARED), *((point, POINT) for point in curve))
        for values, names in needed:
            if missing := {*names} - values.keys():
                raise ValueError(f"there is no {', '.join(sorted(missing))}")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"runs: {run.path}: summary.json or metrics.jsonl cannot be read ({error}); leave it "
            "out"
        ) from error
    row = {"run": str(run.path), **settings, **summary, "curve": curve}
    with suppress(UserError):
        evidence = evidence_of(run)
        if evidence["step"] == steps:
            row["heads"] = {name: head["role"][0] for name, head in evidence["heads"].items()}
    for name in ("tokens_sha256", "text"):
        if (value := read_value(run.data_file, name)) is not None:
            row[name] = str(value)
    return row


def read_measured(folder: Path) -> list[Row]:
    """The lines of metrics.jsonl of a run. Raises OSError or ValueError if they cannot be read."""
    lines = read_text(folder / "metrics.jsonl", MAX_METRICS).splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]  # a kill can leave a half


def open_log(folder: Path) -> Index:
    """The attention maps that a run logged."""
    from tensorboard_attention.index import Index  # and with it much that a training does not need

    index = Index(str(folder))
    while not index.refresh():
        pass
    return index


def head_names(run: Run, steps: Iterable[int]) -> dict[int, Names]:
    """What each head of a run is called, by step, layer and head: as its evidence says, if that is
    of the step, or else what was logged with the maps of its probe. Without the steps at which it
    is not known."""
    from tensorboard_attention.evidence import names_of  # as in `open_log`

    found, wanted = {}, {*steps}
    with suppress(UserError):
        evidence = evidence_of(run)
        if evidence["step"] in wanted:
            found[evidence["step"]] = names_of(evidence)
    if missing := wanted - {*found}:
        index = open_log(run.path)
        for step in missing & {*index.steps().get(".", {}).get(TAG, [])}:
            found[step] = _logged_names(index, step)
    return found


def last_names(run: Run, step: int) -> Names:
    """What heads were called at the last step up to `step` at which they were measured during the
    training; [] if they were not."""
    index = open_log(run.path)
    logged = [found for found in index.steps().get(".", {}).get(TAG, []) if found <= step]
    return _logged_names(index, logged[-1]) if logged else []


def _logged_names(index: Index, step: int) -> Names:
    from tensorboard_attention.naming import HeadName  # as in `open_log`
    from tensorboard_attention.strict import from_json

    header = from_json(next(iter(index.maps(".", TAG, step))))
    layers = zip(header["roles"], header["sentences"], header["details"], strict=True)
    return [
        [
            HeadName._make([*role, headline, details, interest])
            for role, (headline, _, interest), details in zip(*layer, strict=True)
        ]
        for layer in layers
    ]


def unmeasured(n_layers: int, n_heads: int) -> Names:
    """What heads are called at a step at which nothing was measured."""
    from tensorboard_attention.naming import UNMEASURED  # as in `open_log`

    return [[UNMEASURED] * n_heads] * n_layers


def evidence_of(run: Run) -> dict[str, Any]:
    """The content of evidence.json. Raises UserError if the run has none."""
    from tensorboard_attention.evidence import NAME, read_evidence  # as in `open_log`

    try:
        return read_evidence(run.path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"run: {run.path} has no usable {NAME} ({error}); write it with "
            f"python look.py run={as_argument(str(run.path))} evidence=true"
        ) from error
