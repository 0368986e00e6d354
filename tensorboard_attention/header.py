"""Headers of logged maps. summary.py describes their format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorboard_attention.limits import HEADER_BYTES
from tensorboard_attention.summary import VERSION


class Columns(NamedTuple):
    """Which scores a step has: their names, where each was measured ("" if the log does not say
    so), and the number of heads per layer."""

    names: tuple[str, ...]
    measured: tuple[str, ...]
    heads: tuple[int, ...]


class Header(NamedTuple):
    """What the index keeps of a header. scores: float32 (score, head), heads layer by layer, NaN
    for missing ones. text: the same number for the same tokens, as long as this process runs."""

    columns: Columns
    scores: bytes
    text: int


def read_header(strings: Sequence[bytes]) -> Header:
    """The header of a logged tensor, which holds it and the maps. Raises ValueError, with the
    reason, if the tab cannot show it."""
    if len(strings) != 2:
        raise ValueError("it is not a header and maps")
    if len(strings[0]) > HEADER_BYTES:
        raise ValueError(f"its header has more than {HEADER_BYTES // 10**6} MB")
    try:
        header = json.loads(strings[0])
        if header.get("version") == VERSION:
            return _read(header)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise ValueError("its header is not what add_attention writes") from None
    raise ValueError(f"its format version is not {VERSION}, the one that this tab reads")


def _read(header: dict[str, Any]) -> Header:
    """Raises one of many errors if the header is not in the format."""
    scores, measured, heads = header["scores"], header.get("measured", {}), header["heads"]
    if not scores:
        raise ValueError("each step has scores, so that their number bounds the number of heads")
    rows = [[value for layer in layers for value in layer] for layers in scores.values()]
    values = np.array(rows, "<f4").reshape(len(scores), sum(heads))
    places = tuple(str(measured.get(name, "")) for name in scores)
    text = hash((*header["tokens"], None, *header.get("keys", ())))
    return Header(Columns(tuple(scores), places, tuple(heads)), values.tobytes(), text)
