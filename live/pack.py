"""Weights as text for a web page, which static/weights.js reads.

The bytes of a checkpoint are the values of all its parameters, one parameter after the other, row
by row: first their lowest bytes, then the next ones, up to the highest (which compress better
apart). In a page they are compressed by zlib and spelled in base64. The types of the values:

    float32  IEEE 754, 4 bytes
    float16  IEEE 754, 2 bytes, rounded to the nearest
    int8     of every matrix: -127 to 127, 1 byte, which times its row's scale is the weight. After
             those of all matrices follow, as float32, the scales of the rows of each matrix and the
             values of each vector, in the order of the parameters.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping

import numpy as np

from common.errors import UserError

BYTES = {"float16": 2, "int8": 1, "float32": 4}  # of a weight, about

MAX_BYTES = 200e6  # bytes of a page; browsers can hold a text of 500 MB, but not much beside it

Tensors = Mapping[str, np.ndarray]


def check_size(n_parameters: int, n_checkpoints: int, weights: str) -> None:
    """Raise UserError if the page would be too large for a browser."""
    size = n_parameters * n_checkpoints * BYTES[weights] * 4 / 3  # in base64
    if size > MAX_BYTES:
        raise UserError(
            f"weights: a page with {n_checkpoints} x {n_parameters:,} parameters as {weights} has "
            f"about {size / 1e6:,.0f} MB, more than the {MAX_BYTES / 1e6:.0f} MB that browsers "
            "take; give weights=int8, checkpoints=one or a smaller model"
        )


def pack(tensors: Tensors, weights: str) -> str:
    """float32 tensors, finite, with one or two axes, as the text that a page holds.

    Raises UserError if a value is too large for float16.
    """
    return base64.b64encode(zlib.compress(packed_bytes(tensors, weights), 9)).decode()


def packed_bytes(tensors: Tensors, weights: str) -> bytes:
    """The bytes in the text that `pack` returns. Raises as `pack` does."""
    if weights == "int8":
        halves = [_quantized(tensor) for tensor in tensors.values()]
        integers = [rows for rows, _ in halves if rows is not None]
        return _planes(integers, "<i1") + _planes([floats for _, floats in halves], "<f4")
    if weights == "float16":
        _check_range(tensors)
        return _planes(tensors.values(), "<f2")
    return _planes(tensors.values(), "<f4")


def _check_range(tensors: Tensors) -> None:
    for name, tensor in tensors.items():
        if tensor.size and np.abs(tensor).max() >= 65520:  # would round to infinity
            raise UserError(
                f"weights: float16 cannot hold {name}, which has values beyond 65,504; choose "
                "weights=float32"
            )


def _quantized(values: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """A matrix as integers, and the scales of its rows; a vector as it is."""
    if values.ndim < 2:
        return None, values
    scales = np.abs(values).max(1) / np.float32(127)
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = np.rint(values / scales[:, None])
    # A scale can underflow to zero; the row is then zero too.
    return np.nan_to_num(rows, nan=0.0).clip(-127, 127).astype(np.int8), scales


def _planes(arrays: Iterable[np.ndarray], dtype: str) -> bytes:
    flat = [array.astype(dtype).reshape(-1) for array in arrays]
    whole = np.concatenate(flat) if flat else np.empty(0, dtype)
    return whole.view(np.uint8).reshape(-1, whole.itemsize).T.tobytes()
