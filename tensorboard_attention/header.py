"""Headers of logged maps. summary.py describes their format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, get_args

import numpy as np

from tensorboard_attention.limits import HEADER_BYTES
from tensorboard_attention.strict import from_json
from tensorboard_attention.summary import VERSION

TEXTS = {str: str}
FIELDS = {
    "tokens": [str],
    "note": str,
    "heads": [int],
    "causal": bool,
    "scores": {str: [[float | int | None]]},
    "meanings": TEXTS,
    "units": TEXTS,
    "measured": TEXTS,
    "counts": {str: int},
    "sentences": [[(str, list | None, float | int)]],
    "roles": [[(str, str)]],
    "overview": str,
}
OPTIONAL = {
    "keys": [str],
    "details": [[str]],
    "not_finite": [(int, int)],
    "wiring": [(int, int, int, int, int, float | int)],
    "losses": [float | int | None],
    "floor": [float | int | None],
    "next": [[(str, float | int | None, float | int | None)]],
}


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
        header = from_json(strings[0])
        if header.get("version") == VERSION:
            return _read(header)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ValueError("its header is not what add_attention writes") from None
    raise ValueError(f"its format version is not {VERSION}, the one that this tab reads")


def _read(header: dict[str, Any]) -> Header:
    """The checked header. Raises some exception if it is not in the format: the page would fail on
    such a header as a whole."""
    more = {name: kind for name, kind in OPTIONAL.items() if name in header}
    check_type(header, FIELDS | more)
    scores, heads, tokens = header["scores"], header["heads"], header["tokens"]
    keys = header.get("keys", tokens)
    # Each step has scores, so that its size bounds the number of heads.
    if not scores or min(heads) < 1 or not tokens or not keys:
        raise ValueError("something is empty")
    said = [header[name] for name in ("sentences", "roles", "details") if name in header]
    for layers in (*scores.values(), *said):
        if [len(layer) for layer in layers] != heads:
            raise ValueError("it does not fit the heads")
    guesses = [header[name] for name in ("losses", "floor", "next") if name in header]
    if guesses and [*map(len, guesses)] != [len(tokens)] * 3:
        raise ValueError("it does not say something of every token")
    for way, layer, head, earlier, writer, share in header.get("wiring", []):
        if not (0 <= way < 3 and 0 <= earlier < layer and math.isfinite(share)):
            raise ValueError("an edge does not lead to a later layer")
        if not (0 <= head < heads[layer] and -1 <= writer < heads[earlier]):
            raise ValueError("an edge is between heads that are not there")
    with np.errstate(over="ignore"):
        values = np.array([[*chain.from_iterable(layers)] for layers in scores.values()], float)
        values = values.astype("<f4")
    if np.isinf(values).any():
        raise ValueError("a score is too large")
    measured = tuple(header["measured"].get(name, "") for name in scores)
    text = hash((*tokens, None, *keys))
    columns = Columns(tuple(scores), measured, tuple(heads))
    return Header(columns, values.tobytes(), text)


def fits(value: Any, kind: Any) -> bool:
    """Whether a value of JSON has this type. A list in a type is of any length, a tuple stands for
    a list of these, {str: kind} for an object with any names, and any other dictionary for one
    that has at least these fields."""
    if isinstance(kind, tuple):
        return fits(value, list) and len(value) == len(kind) and all(map(fits, value, kind))
    if isinstance(kind, list):
        return fits(value, list) and all(fits(item, kind[0]) for item in value)
    if isinstance(kind, dict) and str in kind:
        return fits(value, dict) and all(fits(item, kind[str]) for item in value.values())
    if isinstance(kind, dict):
        return fits(value, dict) and all(
            name in value and fits(value[name], field) for name, field in kind.items()
        )
    if isinstance(value, bool):  # which Python counts among the numbers
        return bool in (kind, *get_args(kind))
    return isinstance(value, kind)


def check_type(value: Any, kind: Any) -> None:
    """Raises ValueError unless the value `fits`."""
    if not fits(value, kind):
        raise ValueError("it is not in the format")
