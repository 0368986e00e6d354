"""Images show every value in its cell and every label in full, in any script."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from unicodedata import category

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from playwright import sync_api

import tensorboard_attention
from observe import figures
from observe.figures import GREY, HeadsFigure, colours, score_image, token_label, write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture
def fonts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, the only one that is searched for fonts."""
    cached = (figures.system_fonts, figures.open_font, figures.font_of, figures.write)
    monkeypatch.setattr(figures, "FONT_FOLDERS", [str(tmp_path)])
    for each in cached:
        each.cache_clear()
    yield tmp_path
    for each in cached:
        each.cache_clear()


@pytest.mark.parametrize("n_heads", [1, 3, 4])
def test_every_weight_is_drawn_in_its_cell(n_heads: int) -> None:
    """The pixel in the middle of each cell has the expected colour."""
    n = 6
    weights = np.random.default_rng(0).dirichlet(np.ones(n), size=(n_heads, n)).astype(np.float32)
    figure = HeadsFigure([f"t{i}" for i in range(n)], n_heads)
    first = figure.draw(np.zeros_like(weights))
    image = figure.draw(weights)
    assert image.shape == first.shape and image.dtype == np.uint8
    one = figure.maps[0]
    height, width, _ = one.empty.shape
    for head in range(n_heads):
        row, column = divmod(head, {1: 1, 3: 2, 4: 2}[n_heads])
        for query in range(n):
            for key in range(n):
                y = row * height + one.top + query * one.height + one.height // 2
                x = column * width + one.left + key * one.width + one.width // 2
                expected = colours(np.sqrt(weights[head, query, [key]]))[0]
                np.testing.assert_array_equal(image[y, x], GREY if key > query else expected)


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


@pytest.mark.parametrize("label", ["a", "·incomprehens…", "𒀀" * 14, r"$\no{\u{7}}", "W" * 14])
def test_labels_do_not_overlap_and_are_not_cut_off(label: str) -> None:
    """The image has all the ink of its texts, and none at its edges or in its cells."""
    for n in range(1, 25):
        one = HeadsFigure([label] * n, 1).maps[0]
        texts = ["head 0", "query: attends", "key: attended to", *[label] * 2 * n]
        assert ink(one.empty) == sum(ink(write(text)) for text in texts)
        assert ink(one.empty[-1]) == ink(one.empty[:, -1]) == 0
        bottom, right = one.top + n * one.height, one.left + n * one.width
        assert ink(one.empty[one.top : bottom, one.left : right]) == 0


@pytest.mark.parametrize("n", [1, 24])
@pytest.mark.parametrize("n_heads", [2, 3, 5, 12, 31, 32])
def test_heads_do_not_overlap(n: int, n_heads: int) -> None:
    """The ink is that of one head times the number of heads, plus titles and the scale."""
    weights = np.full((n_heads, n, n), 0.5, np.float32)
    first, figure = HeadsFigure(["label"] * n, 1), HeadsFigure(["label"] * n, n_heads)
    untitled = ink(first.draw(weights[:1])) - ink(first.scale) - ink(write("head 0"))
    titles = sum(ink(write(f"head {head}")) for head in range(n_heads))
    assert ink(figure.draw(weights)) == n_heads * untitled + titles + ink(figure.scale)


def test_labels_are_beside_and_below_their_cells() -> None:
    one = HeadsFigure(["MMMMMMMMMM", "i", " "], 1).maps[0]
    rows = [one.top + index * one.height for index in range(3)]
    columns = [one.left + index * one.width for index in range(3)]
    bottom = one.top + 3 * one.height
    beside = [ink(one.empty[y : y + one.height, 15 : one.left]) for y in rows]
    below = [ink(one.empty[bottom:-20, x : x + one.width]) for x in columns]
    assert beside == below == [ink(write("MMMMMMMMMM")), ink(write("i")), 0]


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


def test_characters_without_a_font_are_escaped(fonts: Path) -> None:
    np.testing.assert_array_equal(write("a中"), write(r"a\u{4e2d}"))
    np.testing.assert_array_equal(write("\u093f"), write(r"\u{93f}"))  # a vowel sign alone


def test_characters_with_a_font_are_drawn(fonts: Path) -> None:
    """A font in a subfolder is found, beside a file that is not a font; its glyph is a square."""
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    for point in ((100, 800), (900, 800), (900, 0)):
        pen.lineTo(point)
    pen.closePath()
    builder = FontBuilder(1000)
    builder.setupGlyphOrder([".notdef", "middle"])
    builder.setupCharacterMap({ord("中"): "middle"})
    builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "middle": pen.glyph()})
    builder.setupHorizontalMetrics({".notdef": (1000, 0), "middle": (1000, 100)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupPost()
    (fonts / "deep").mkdir()
    builder.save(fonts / "deep/square.ttf")
    (fonts / "a.ttf").write_bytes(b"not a font")
    drawn = write("中中")
    assert drawn.shape[1] < 30 < write(r"\u{4e2d}").shape[1]
    dark = np.all(drawn < 128, axis=-1)
    assert 2 * 7 * 7 <= dark.sum() <= 2 * 9 * 9  # two squares with sides of 8.8 pixels
    np.testing.assert_array_equal(write("日"), write(r"\u{65e5}"))


def test_a_score_that_rounds_to_zero_has_no_sign() -> None:
    signed = score_image(np.array([[-0.004, 0.2]]), top=1.0)
    np.testing.assert_array_equal(signed, score_image(np.array([[0.0, 0.2]]), top=1.0))


def test_a_score_image_shows_low_high_and_unknown() -> None:
    image = score_image(np.array([[0.0, 1.0, np.nan], [0.0, 2.0, 0.0]]), top=1.0)
    present = {tuple(colour) for colour in image.reshape(-1, 3).tolist()}
    low, high = (tuple(colour) for colour in colours(np.array([0.0, 1.0])).tolist())
    assert {low, high, GREY} <= present
    # Numbers are black on low scores and white on high scores.
    assert {(0, 0, 0), (255, 255, 255)} <= present
