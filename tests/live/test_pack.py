"""Weights in the page: what the browser reads is exactly what Python says that it is."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from common.errors import UserError
from live.pack import BYTES, pack
from tests.live.conftest import Call
from tests.live.pages import rounded

READ = """async ({ unpack }, { data, text }) => {
    const tensors = await unpack(data, text);
    return Object.entries(tensors).map(([name, values]) =>
        [name, Array.from(new Uint32Array(values.slice().buffer))]);
}"""


def array(values: object) -> np.ndarray:
    return np.array(values, np.float32)


def tensors() -> dict[str, np.ndarray]:
    """Ordinary weights, all 16-bit numbers, and the odd ones: zeros of both signs, rows of zeros,
    the smallest and the largest numbers."""
    rng = np.random.default_rng(0)
    info = np.finfo(np.float32)
    odd = array([[0, -0.0, 1, -1], [0, 0, 0, 0], [65504, -65504, 6e-8, 5.9e-8]])
    halves = np.arange(1 << 16).astype(np.uint16).view(np.float16)
    tiny = array([[info.smallest_subnormal, 0], [info.tiny, -info.tiny], [1e-42, -1e-45]])
    return {
        "matrix": rng.normal(size=(7, 5)).astype(np.float32),
        "vector": rng.normal(size=9).astype(np.float32),
        "odd": odd,
        "halves": halves[np.isfinite(halves)].astype(np.float32),
        "tiny": tiny,
        "bias": array([0, -0.0, 2048.5, 1e-7, 65519]),
        "row": rng.normal(size=(1, 300)).astype(np.float32),
        "column": rng.normal(size=(300, 1)).astype(np.float32),
    }


def described(given: dict[str, np.ndarray], weights: str) -> dict[str, Any]:
    shapes = [[name, list(each.shape)] for name, each in given.items()]
    return {"parameters": shapes, "weights": weights}


@pytest.mark.parametrize("weights", BYTES)
def test_the_browser_reads_exactly_these_weights(module: Call, weights: str) -> None:
    given = tensors()
    found = module(
        "weights.js", READ, {"data": described(given, weights), "text": pack(given, weights)}
    )
    expected = rounded(given, weights)
    assert [name for name, _ in found] == [*expected]
    for name, bits in found:
        wanted = expected[name].reshape(-1).view(np.uint32)
        assert np.array_equal(np.array(bits, np.uint32), wanted), name


@pytest.mark.parametrize(("weights", "most"), [("float16", 2.3), ("int8", 1.3), ("float32", 5)])
def test_a_weight_takes_as_many_bytes_as_the_guide_says(weights: str, most: float) -> None:
    matrix = np.random.default_rng(0).normal(0, 0.05, (1000, 800)).astype(np.float32)
    assert len(pack({"matrix": matrix}, weights)) / matrix.size <= most


def test_a_number_too_large_for_16_bits_is_refused() -> None:
    given = {"blocks.0.mlp.up.weight": array([[1, 65520]])}
    with pytest.raises(UserError, match=r"^weights: float16 .* blocks.0.mlp.up.weight"):
        pack(given, "float16")


@pytest.mark.parametrize("weights", BYTES)
def test_damaged_weights_are_an_error(module: Call, weights: str) -> None:
    given = tensors()
    text = pack(given, weights)
    data = base64.b64decode(text)
    for damaged in (data[:-9], data[:40], pack({"a": array([1.0])}, weights).encode()):
        text = base64.b64encode(damaged).decode()
        failed = module(
            "weights.js",
            "({ unpack }, { data, text }) => unpack(data, text).then(() => false, () => true)",
            {"data": described(given, weights), "text": text},
        )
        assert failed
