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

import os
from pathlib import Path
from typing import Any, BinaryIO

from tensorboard_attention.beside import TooLarge, read_beside
from tensorboard_attention.header import fits
from tensorboard_attention.limits import RECORD_BYTES
from tensorboard_attention.strict import from_json

NAME = "losses.jsonl"
MAX_STRIDE = 100


def read_losses(folder: Path) -> dict[str, Any]:
    """The file of a run: its first line, and the others as "steps", by step. Of a file of more than
    RECORD_BYTES, these are only every second (third, ...) one and the last.

    Raises OSError if there is none, or no file that can be one, and ValueError if it is not in the
    format, or too large even so.
    """
    found: dict[str, Any] = read_beside(folder, NAME, _check, _read_lines)
    return found


def _read_lines(file: BinaryIO) -> dict[str, Any]:
    stride = -(-os.fstat(file.fileno()).st_size // RECORD_BYTES)
    if stride > MAX_STRIDE:
        raise TooLarge
    found: dict[str, Any] = {}
    steps: dict[str, Any] = {}

    def add(line: bytes) -> None:
        values = from_json(line)
        if "texts" in values:
            found.update(values)
        else:
            steps[str(values.pop("step"))] = values

    last = b""
    for number, line in enumerate(iter(lambda: file.readline(RECORD_BYTES), b"")):
        if not line.endswith(b"\n"):
            break
        if number % stride == 0 or b'"texts"' in line:
            add(line)
        last = line
    if last:
        add(last)
    return {**found, "steps": steps}


def last_loss(folder: Path) -> float:
    """The mean loss of the tokens at the last step, in bits. Raises as `read_losses`, and
    ValueError if there are no tokens."""
    steps = read_losses(folder)["steps"]
    bits = [value for text in steps[max(steps, key=int)]["bits"] for value in text]
    if not bits:
        raise ValueError("it has no tokens")
    return float(sum(bits) / len(bits))


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
