"""Headers of logged maps. summary.py describes their format."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from tensorboard_attention.limits import HEADER_BYTES
from tensorboard_attention.summary import VERSION


class Header(NamedTuple):
    """What the index keeps of a header: scores as float32 (score, head), NaN for missing ones, and
    where each was measured, "" if the log does not say so. text: the same number for the same
    tokens, as long as this process runs."""

    names: tuple[str, ...]
    heads: tuple[int, ...]
    measured: tuple[str, ...]
    text: int
    scores: bytes


def read_header(text: bytes) -> Header:
    """Raises ValueError, with the reason, for a header that the tab cannot show."""
    if len(text) > HEADER_BYTES:
        raise ValueError(f"its header has more than {HEADER_BYTES // 10**6} MB")
    try:
        header = json.loads(text)
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
    same = hash((*header["tokens"], None, *header.get("keys", ())))
    return Header(tuple(scores), tuple(heads), places, same, values.tobytes())
