"""Images show every value in its cell, and the label of every token."""

from __future__ import annotations

import numpy as np
import pytest

from observe.figures import CELL, GAP, GREY, SIZE, colours, draw_heads, token_label


@pytest.mark.parametrize("n_heads", [1, 3, 4])
def test_every_weight_is_drawn_in_its_cell(n_heads: int) -> None:
    """The pixel in the middle of each cell has the expected colour."""
    n = 6
    weights = np.random.default_rng(0).dirichlet(np.ones(n), size=(n_heads, n)).astype(np.float32)
    weights[0, 3, 1] = np.nan  # of a run that diverges: drawn as 0
    labels = [f"t{i}" for i in range(n)]
    image = draw_heads(labels, weights)
    assert image.dtype == np.uint8
    height, width = (image.shape[0] - GAP) // n_heads, image.shape[1] - GAP
    for head in range(n_heads):
        bottom, right = (head + 1) * height - (width - GAP - n * CELL), width - GAP
        for query in range(n):
            for key in range(n):
                y = bottom - (n - query) * CELL + CELL // 2
                x = right - (n - key) * CELL + CELL // 2
                value = np.sqrt(np.nan_to_num(weights[head, query, [key]]))
                expected = GREY if key > query else colours(value)[0]
                np.testing.assert_array_equal(image[y, x], expected)


def ink(image: np.ndarray) -> int:
    """Return the total darkness of an image."""
    return int((255 - image.astype(int)).sum())


def test_labels_are_beside_and_below_their_cells() -> None:
    """The longest label has the most ink, and a blank one none."""
    n, labels = 3, ["MMMM", "i", ""]
    image = draw_heads(labels, np.zeros((1, n, n), np.float32))
    left, top = image.shape[1] - n * CELL - 2 * GAP, 2 * GAP + SIZE
    bottom = top + n * CELL
    beside = [ink(image[y : y + CELL, :left]) for y in range(top, bottom, CELL)]
    below = [ink(image[bottom:, x : x + CELL]) for x in range(left, left + n * CELL, CELL)]
    assert beside == below
    assert beside[0] > beside[1] > beside[2] == 0


@pytest.mark.parametrize(
    ("token", "label"),
    [
        (b" the", "·the"),
        (b"\n\n", "⏎⏎"),
        (b"\t", "⇥"),
        (b"\r", r"\r"),
        (b"", "∅"),
        (b"\xe2\x82", r"\xe2\x82"),
        (b"a\xff", r"a\xff"),
        (b"\x00a", r"\x00a"),
        ("\u3000".encode(), r"\u3000"),
        ("é中😀".encode(), "é中😀"),
        (b"incomprehensible", "incomprehensi…"),
    ],
)
def test_token_labels(token: bytes, label: str) -> None:
    assert token_label(token) == label
