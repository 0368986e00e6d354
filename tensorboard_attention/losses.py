"""What a run learned when: `losses.json` in the folder of its event files, if there is one.

unit     of the values
texts    the tokens of each text
groups   by name: for each text, the places of its tokens in this group
floor    for each text, the loss of a perfect model on its tokens, in bits; null if it is unknown
steps    by step: "values" by group, and "bits", the loss of each token of each text
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard_attention.header import fits
from tensorboard_attention.limits import RECORD_BYTES
from tensorboard_attention.records import is_plain, open_regular
from tensorboard_attention.strict import from_json, to_json

NAME = "losses.json"


def version(folder: Path) -> str | None:
    """A text that changes with the file of a run; None if there is none."""
    path = folder / NAME
    return str(path.stat().st_mtime_ns) if is_plain(path) else None


def read_losses(folder: Path) -> str:
    """The file of a run, as JSON. Raises OSError if there is none, or no file that can be one, and
    ValueError if it is not in the format."""
    path = folder / NAME
    if not is_plain(path):
        raise OSError(0, "there is no such file", NAME)
    with open_regular(path) as file:
        data = file.read(RECORD_BYTES + 1)
    if len(data) > RECORD_BYTES:
        raise ValueError("it is too large")
    try:
        found = from_json(data)
        _check(found)
        return to_json(found)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ValueError("it is not in the format") from None


def _check(found: dict[str, Any]) -> None:
    """Raises some exception if the file is not in the format."""
    texts, groups, steps = found["texts"], found["groups"], found["steps"]
    bits = [step["bits"] for step in steps.values()]
    floors = [] if found["floor"] is None else [found["floor"]]
    values = [step["values"] for step in steps.values()]
    number = float | int
    if not (
        fits(found["unit"], str)
        and fits(texts, [[str]])
        and fits(groups, {str: [[int]]})
        and fits([*bits, *floors], [[[number]]])
        and fits(values, [{str: number}])
        and all(step.isdecimal() for step in steps)
        and groups
    ):
        raise ValueError
    lengths = [len(text) for text in texts]
    if any([len(row) for row in numbers] != lengths for numbers in (*bits, *floors)):
        raise ValueError
    for rows in groups.values():
        for row, length in zip(rows, lengths, strict=True):
            if row and not 0 <= min(row) <= max(row) < length:
                raise ValueError
