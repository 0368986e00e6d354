"""Images show every value in its cell, and the label of every token."""

from __future__ import annotations

import numpy as np
import pytest

from common.errors import token_label
from observe.figures import CELL, GAP, GREY, colours, draw_heads


@pytest.mark.parametrize(
    ("n_heads", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 2, 2), (12, 4, 3)]
)
def test_every_weight_is_drawn_in_its_cell(n_heads: int, columns: int, rows: int) -> None:
    """The pixel in the middle of each cell has the expected colour."""
    n = 6
    weights = np.random.default_rng(0).dirichlet(np.ones(n), size=(n_heads, n)).astype(np.float32)
    weights[0, 3, 1] = np.nan  # of a run that diverges: drawn as 0
    labels = [f"t{i}" for i in range(n)]
    image = draw_heads(labels, weights)
    assert image.dtype == np.uint8
    height, width = (image.shape[0] - GAP) // rows, (image.shape[1] - GAP) // columns
    for head in range(n_heads):
        row, column = divmod(head, columns)
        bottom = (row + 1) * height - (width - GAP - n * CELL)
        right = (column + 1) * width - GAP
        for query in range(n):
            for key in range(n):
                y = bottom - (n - query) * CELL + CELL // 2
                x = right - (n - key) * CELL + CELL // 2
                value = np.sqrt(np.nan_to_num(weights[head, query, [key]]))
                expected = GREY if key > query else colours(value)[0]
                np.testing.assert_array_equal(image[y, x], expected)


def test_colours_go_from_almost_white_to_dark_in_even_steps() -> None:
    """Steps are even in CIE 1976 lightness (white has luminance 1), which is close to OKLab's."""
    shown = colours(np.linspace(0, 1, 21)) / 255
    linear = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ (0.2126, 0.7152, 0.0722)) - 16
    assert lightness[0] > 95 and lightness[-1] < 20
    assert np.ptp(np.diff(lightness)) < 3 and np.all(np.diff(lightness) < -2)


@pytest.mark.parametrize(
    ("token", "label"),
    [
        (b" the", "·the"),
        (b"\n\n", "⏎⏎"),
        (b"a\xff", r"a\xff"),
        ("é中😀".encode(), "é中😀"),
        (b"incomprehensible", "incomprehensi…"),
        (b"\x00a", r"\x00a"),
    ],
)
def test_token_labels(token: bytes, label: str) -> None:
    assert token_label(token) == label
