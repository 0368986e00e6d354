"""What a run learned when: `losses.jsonl` in the folder of its event files, if there is one.

One of its lines, usually the first, has

unit     of the values
texts    the tokens of each text
groups   by name: for each text, the places of its tokens in this group
floor    for each text, the loss of a perfect model on its tokens, in bits; null if it is unknown

and each of the others a `step`, "values" by group, and "bits", the loss of each token of each text.
Of lines of one step, the last counts. A last line without an end is still being written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from tensorboard_attention.beside import read_beside
from tensorboard_attention.header import check_type
from tensorboard_attention.strict import from_json

NAME = "losses.jsonl"
VALUES = [[float | int]]
FIELDS = {
    "unit": str,
    "texts": [[str]],
    "groups": {str: [[int]]},
    "steps": {str: {"values": {str: float | int}, "bits": VALUES}},
}


def read_losses(folder: Path) -> dict[str, Any]:
    """The file of a run: its first line, and the others as "steps", by step.

    Raises OSError if there is none, or no file that can be one, and ValueError if it is not in the
    format, or too large.
    """
    data = read_beside(folder / NAME)
    lines = [from_json(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
    check_type(lines, [{}])
    found: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    for line in lines:
        if "texts" in line:
            found |= line
        else:
            steps[str(line.pop("step", ""))] = line
    found["steps"] = steps
    is_known = found.get("floor") is not None
    check_type(found, FIELDS | {"floor": VALUES if is_known else NoneType})
    _check_places(found)
    return found


def _check_places(found: Mapping[str, Any]) -> None:
    """Raises ValueError unless there is a value for each token, and groups are of tokens: the page
    would fail as a whole."""
    lengths, groups = [*map(len, found["texts"])], [*found["groups"].values()]
    values = [step["bits"] for step in found["steps"].values()]
    values += [] if found["floor"] is None else [found["floor"]]
    is_whole = all([*map(len, texts)] == lengths for texts in values)
    are_groups = groups and all(len(rows) == len(lengths) for rows in groups)
    are_placed = all(
        0 <= at < length
        for rows in groups
        for row, length in zip(rows, lengths, strict=False)
        for at in row
    )
    are_steps = all(step.isdecimal() for step in found["steps"])
    if not (is_whole and are_groups and are_placed and are_steps):
        raise ValueError("it is not in the format")
