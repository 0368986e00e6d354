"""JSON that every browser reads. Python's `json` also reads and writes NaN, Infinity and numbers
that no double holds."""

from __future__ import annotations

import json
import math
from typing import Any


def from_json(text: str | bytes) -> Any:
    """The value in JSON. Raises ValueError for anything else."""
    try:
        return json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def to_json(value: Any) -> str:
    """The JSON of a value. Raises ValueError for numbers that JSON does not have."""
    return json.dumps(value, allow_nan=False)


def _number(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is not a number in JSON")
    return value


def _whole(text: str) -> int:
    _number(text)
    return int(text)
