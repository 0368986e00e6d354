"""Images show every value in its cell, and the label of every token."""

from __future__ import annotations

import shutil
from pathlib import Path
from unicodedata import category

import numpy as np
import pytest
from playwright import sync_api

import tensorboard_attention
from observe.figures import CELL, GAP, GREY, SIZE, colours, draw_heads, token_label

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


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


def test_colours_go_from_almost_white_to_dark_in_even_steps() -> None:
    """Steps are even in CIE 1976 lightness (white has luminance 1), which is close to OKLab's."""
    shown = colours(np.linspace(0, 1, 21)) / 255
    linear = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ (0.2126, 0.7152, 0.0722)) - 16
    assert lightness[0] > 95 and lightness[-1] < 20
    assert np.ptp(np.diff(lightness)) < 3 and np.all(np.diff(lightness) < -2)


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
        (b"\r", r"\u{d}"),
        (b"", "∅"),
        (b"\xe2\x82", r"\xe2\x82"),
        (b"a\xff", r"a\xff"),
        (b"\x00a", r"\u{0}a"),
        ("\u3000\u200d".encode(), r"\u{3000}…"),
        ("é中😀".encode(), "é中😀"),
        (b"incomprehensible", "incomprehensi…"),
        (b"\x07" * 15, r"\u{7}\u{7}…"),
        (b"abcdefg\xff\xff", r"abcdefg\xff…"),
    ],
)
def test_token_labels(token: bytes, label: str) -> None:
    assert token_label(token) == label


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_tab_labels_tokens_in_the_same_way() -> None:
    tokens = [bytes([byte]) for byte in range(256)]
    letters = map(chr, (*range(0x80, 0x3100), *range(0xFE00, 0x10000)))
    # Python and the browser may support different versions of Unicode.
    tokens += [letter.encode() for letter in letters if category(letter) != "Cn"]
    tokens += [b"", " naïve 中\r\n".encode(), b"incomprehensible", b"\x07" * 15, b"a\xff\xfe" * 9]
    texts = [token.decode(errors="backslashreplace") for token in tokens]
    source = (Path(tensorboard_attention.__file__).parent / "static/dom.js").read_text()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(content=source.replace("export ", ""))
        labels = page.evaluate("texts => texts.map(text => tokenLabel(text, 14))", texts)
    differ = [
        (token, ours, theirs)
        for token, theirs in zip(tokens, labels, strict=True)
        if (ours := token_label(token)) != theirs
    ]
    assert not differ
