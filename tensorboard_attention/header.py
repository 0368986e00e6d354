"""Headers of logged maps, from logs that anyone may have written: believed only after a check.

The page shows what has passed this check, without another one. summary.py describes the format.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import numpy as np

from tensorboard_attention.summary import MAX_TOKENS, VERSION

MOST_BYTES = 4_000_000  # parsed, JSON can take 25 times as much memory
MOST_TOKENS = 8 * MAX_TOKENS
MOST_HEADS = 16_384  # in all layers
MOST_SCORES = 1_000
MOST_TEXT = 500  # characters of a sentence, and of where a score was measured
LARGEST = float(np.finfo(np.float32).max)


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
    """Raises ValueError, with the reason, for a header that the page could not show."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"its header has more than {MOST_BYTES // 10**6} MB")
    try:
        header: Any = json.loads(text.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ValueError("its header is not valid JSON") from None
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    if type(header.get("version")) is not int or header["version"] != VERSION:
        raise ValueError(f"its format version is not {VERSION}, the one that this tab reads")
    _check_texts(header)
    heads: Any = header.get("heads")
    scores: Any = header.get("scores")
    if not _all_of(heads, int) or min(heads, default=0) < 1 or sum(heads) > MOST_HEADS:
        raise ValueError(f"heads in its header are not 1 to {MOST_HEADS:,} heads by layer")
    if not isinstance(scores, dict) or len(scores) > MOST_SCORES:
        raise ValueError(f"scores in its header are not up to {MOST_SCORES:,} scores by name")
    _check_heads(header.get("not_finite", []), heads)
    rows = [_row(name, layers, heads) for name, layers in scores.items()]
    if "sentences" in header:
        counts = [len(header[name]) for name in ("tokens", "keys") if name in header]
        _check_sentences(header["sentences"], heads, counts[0], counts[-1])
    measured = tuple(header.get("measured", {}).get(name, "") for name in scores)
    same = hash((*header["tokens"], None, *header.get("keys", ())))
    return Header(tuple(scores), tuple(heads), measured, same, np.array(rows, "<f4").tobytes())


def _check_texts(header: dict[str, Any]) -> None:
    for name in ("tokens", "keys") if "keys" in header else ("tokens",):
        tokens: Any = header.get(name)
        if not _all_of(tokens, str) or not 1 <= len(tokens) <= MOST_TOKENS:
            raise ValueError(f"{name} in its header are not 1 to {MOST_TOKENS:,} texts")
    if not isinstance(header.get("causal"), bool):
        raise ValueError("causal in its header is neither true nor false")
    if header["causal"] and "keys" in header:
        raise ValueError("its header has both keys, which only cross attention has, and causal")
    if not isinstance(header.get("note", ""), str):
        raise ValueError("note in its header is not a text")
    for key in ("meanings", "units", "measured"):
        texts = header.get(key, {})
        if not isinstance(texts, dict) or not _all_of([*texts.values()], str):
            raise ValueError(f"{key} in its header are not texts by name")
    if any(len(text) > MOST_TEXT for text in header.get("measured", {}).values()):
        raise ValueError(f"measured in its header has more than {MOST_TEXT} characters")


def _check_sentences(layers: Any, heads: list[int], n: int, m: int) -> None:
    if not _all_of(layers, list) or [*map(len, layers)] != heads:
        raise ValueError("sentences in its header do not fit its heads")
    for each in (each for layer in layers for each in layer):
        if not isinstance(each, list) or len(each) != 3:
            raise ValueError("a sentence in its header is not a text, an example and a number")
        text, example, tells = each
        if not isinstance(text, str) or len(text) > MOST_TEXT:
            raise ValueError(f"a sentence in its header is not up to {MOST_TEXT} characters")
        if example is not None and not (
            _all_of(example, int)
            and len(example) == 2
            and 0 <= example[0] < n
            and 0 <= example[1] < m
        ):
            raise ValueError("an example in its header is not two of its tokens")
        if type(tells) not in (int, float) or not 0 <= tells <= 1:
            raise ValueError("how much a sentence tells in its header is not from 0 to 1")


def _check_heads(found: Any, heads: list[int]) -> None:
    if not _all_of(found, list) or len(found) > sum(heads):
        raise ValueError("not_finite in its header is not a list of heads")
    for each in found:
        if not _all_of(each, int) or len(each) != 2 or not 0 <= each[0] < len(heads):
            raise ValueError("not_finite in its header is not a list of heads")
        if not 0 <= each[1] < heads[each[0]]:
            raise ValueError("not_finite in its header is not a list of heads")


def _row(name: str, layers: Any, heads: list[int]) -> list[float]:
    """A score of all heads, layer by layer."""
    if not _all_of(layers, list) or [*map(len, layers)] != heads:
        raise ValueError(f"score {name[:40]!r} in its header does not fit its heads")
    values = [value for layer in layers for value in layer]
    for value in values:
        if value is not None and (type(value) not in (int, float) or not abs(value) <= LARGEST):
            raise ValueError(f"score {name[:40]!r} in its header has values that are not numbers")
    return [math.nan if value is None else float(value) for value in values]


def _all_of(values: Any, kind: type) -> bool:
    """Whether it is a list of values of this very type: True is not a number."""
    return isinstance(values, list) and all(type(value) is kind for value in values)


def _refuse(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")
