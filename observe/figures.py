"""Labelled heat maps for TensorBoard's Images tab, as RGB arrays.

They are drawn while a model trains, so labels are laid out once and later steps only fill cells.
Pillow draws them: a figure of Matplotlib, whose font is used, takes a tenth of a second.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import distribution
from itertools import accumulate, groupby
from pathlib import Path
from unicodedata import category

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw, ImageFont
from PIL.ImageFont import FreeTypeFont, Layout

Picture = UInt8[np.ndarray, "_ _ 3"]  # height, width, colour

FONT = Path(
    str(distribution("matplotlib").locate_file("matplotlib/mpl-data/fonts/ttf/DejaVuSans.ttf"))
)
FONT_FOLDERS = [
    *("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts"),
    *("/System/Library/Fonts", "/Library/Fonts", "~/Library/Fonts", "C:/Windows/Fonts"),
]
# In pixels: the size of letters, the height of a line, the space between parts, the width of the
# longest label, and the size of a score's cell.
SIZE, LINE, GAP, WIDEST, SCORE_CELL = 11, 13, 4, 165, (28, 44)
GREY = (230, 230, 230)
VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥"}
OKLAB_TO_LMS = np.array([[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728],
                         [1, -0.0894841775, -1.291485548]])  # fmt: skip
LMS_TO_SRGB = np.array([[4.0767416621, -3.3077115913, 0.2309699292],
                        [-1.2684380046, 2.6097574011, -0.3413193965],
                        [-0.0041960863, -0.7034186147, 1.707614701]])  # fmt: skip


def colours(values: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape 3"]:
    """From nearly white (0) through red to dark violet (1), in 256 steps, as in the Attention tab.

    Lightness falls evenly (OKLab, Björn Ottosson 2020), so that the order of two values is also
    visible in print and to colour-blind people. NaN has the colour of 0.
    """
    return _scale()[np.rint(np.nan_to_num(values) * 255).astype(np.uint8)]


@cache
def _scale() -> UInt8[np.ndarray, "256 3"]:
    t = np.linspace(0, 1, 256)
    chroma, hue = 0.18 * np.sin(np.pi * t), np.radians(90 - 165 * t)
    lab = np.stack([0.985 - 0.76 * t, chroma * np.cos(hue), chroma * np.sin(hue)])
    linear = np.clip(LMS_TO_SRGB @ (OKLAB_TO_LMS @ lab) ** 3, 0, 1)
    gamma = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(255 * gamma.T).astype(np.uint8)


def token_label(token: bytes, longest: int = 14) -> str:
    """A token in at most `longest` characters. Escapes are not cut.

    White space, control characters and bytes that are not UTF-8 are made visible, in the same way
    as by `tokenLabel` of the Attention tab, which also keeps emoji sequences.
    """
    shown = [
        VISIBLE.get(part) or (escape(part) if category(part[0])[0] in "CZ" else part)
        for part in re.findall(r"\\x[0-9a-f]{2}|.", token.decode(errors="backslashreplace"), re.S)
    ]
    if len("".join(shown)) > longest:
        ends = accumulate(map(len, shown))
        shown = [part for part, end in zip(shown, ends, strict=True) if end < longest] + ["…"]
    return "".join(shown) or "∅"


def escape(letter: str) -> str:
    return f"\\u{{{ord(letter):x}}}"


@cache
def open_font(path: Path, layout: Layout) -> FreeTypeFont | None:
    for size in (SIZE, 109, 160):  # bitmaps have one size: Noto's emoji 109, Apple's 160
        with suppress(OSError):
            return ImageFont.truetype(str(path), size, layout_engine=layout)
    return None


@cache
def system_fonts() -> list[Path]:
    """Regular faces first: their names say so, or are the shortest of their family."""
    folders = [Path(os.path.expanduser(each)) for each in FONT_FOLDERS]  # noqa: PTH111 (never raises)
    # macOS's LastResort draws a box for every character.
    fonts = [
        path for each in folders for path in each.rglob("*.[ot]t?") if path.stem != "LastResort"
    ]
    return sorted(fonts, key=lambda path: ("Regular" not in path.stem, len(path.stem), path))


@cache
def font_of(letter: str) -> FreeTypeFont | None:
    """The first font that has the letter. Others draw it like the noncharacter U+10FFFF."""
    for paths in (lambda: [FONT], system_fonts):
        for path in paths():
            # Without shaping, which puts a circle under a lone accent.
            font = open_font(path, Layout.BASIC)
            with suppress(OSError):  # a damaged font
                if font and bytes(font.getmask(letter)) != bytes(font.getmask("\U0010ffff")):
                    return open_font(path, Layout.RAQM)
    return None


@cache
def write(text: str) -> Picture:
    """A line of text, black on white. What no font has is escaped; what is too wide is cut."""
    text = text.replace("\ufe0f", "")  # "as an emoji" is invisible, and may be in another font
    escaped = "".join(letter if font_of(letter) else escape(letter) for letter in text)
    parts = [np.full((LINE, 1, 3), 255, np.uint8)]
    for font, letters in groupby(escaped, font_of):
        assert font
        run, scale = "".join(letters), font.size / SIZE
        width = math.ceil(font.getlength(run) / scale) + 1
        part = Image.new("RGB", (round(width * scale), round(LINE * scale)), "white")
        baseline = (0, 0.8 * LINE * scale)
        ImageDraw.Draw(part).text(baseline, run, "black", font, anchor="ls", embedded_color=True)
        parts.append(np.asarray(part.resize((width, LINE))))
    line = np.hstack(parts)
    return line if line.shape[1] <= WIDEST else write(text[:-2] + "…")


def put(
    picture: Picture,
    part: Picture,
    y: int | float,
    x: int | float,
    above: float = 0.5,
    before: float = 0.5,
) -> None:
    """Draw `part` so that these shares of its height and width are above y and before x."""
    height, width, _ = part.shape
    top, left = round(y - above * height), round(x - before * width)
    place = picture[top : top + height, left : left + width]
    np.minimum(place, part, out=place)


class HeatMap:
    """A map without colours: a title, a label for each row and column, and the axes' names.

    `top` and `left` are where its cells begin, `height` and `width` the size of each, in pixels.
    """

    def __init__(
        self,
        title: str,
        rows: Sequence[str],
        columns: Sequence[str],
        axes: tuple[str, str],
        cell: tuple[int, int],
    ) -> None:
        self.height, self.width = cell
        beside, below = [write(each) for each in rows], [write(each) for each in columns]
        if max(each.shape[1] for each in below) > self.width:
            below = [np.rot90(each) for each in below]
        self.top, self.left = LINE + GAP, LINE + 2 * GAP + max(each.shape[1] for each in beside)
        bottom, right = self.top + self.height * len(rows), self.left + self.width * len(columns)
        end = bottom + 2 * GAP + max(each.shape[0] for each in below)
        self.empty = picture = np.full((end + LINE + GAP, right + 2 * GAP, 3), 255, np.uint8)
        for row, label in enumerate(beside):
            put(picture, label, self.top + (row + 0.5) * self.height, self.left - GAP, before=1.0)
        for column, label in enumerate(below):
            put(picture, label, bottom + GAP, self.left + (column + 0.5) * self.width, above=0.0)
        put(picture, np.rot90(write(axes[0])), (self.top + bottom) / 2, 0, before=0.0)
        put(picture, write(axes[1]), end, (self.left + right) / 2, above=0.0)
        put(picture, write(title), 0, (self.left + right) / 2, above=0.0)

    def fill(self, cells: UInt8[np.ndarray, "row column 3"]) -> Picture:
        picture, cells = self.empty.copy(), cells.repeat(self.height, 0).repeat(self.width, 1)
        height, width, _ = cells.shape
        picture[self.top : self.top + height, self.left : self.left + width] = cells
        return picture


class HeadsFigure:
    """A grid of heat maps, one per head, with tokens as labels and a colour scale."""

    def __init__(self, labels: list[str], n_heads: int) -> None:
        cell = max(LINE, math.ceil(150 / len(labels)))
        axes = ("query: attends", "key: attended to")
        self.maps = [
            HeatMap(f"head {head}", labels, labels, axes, (cell, cell)) for head in range(n_heads)
        ]
        # The square root lifts small weights: a head that spreads out must not look empty.
        weights = np.array([1, 0.5, 0.25, 0.1, 0.05, 0.01, 0])
        rows = [f"{weight:g}" for weight in weights]
        scale = HeatMap("", rows, [""], ("attention weight", ""), (cell * len(labels) // 7, 14))
        self.scale = scale.fill(colours(np.sqrt(weights))[:, None])

    def draw(self, weights: Float[np.ndarray, "head token token"]) -> Picture:
        """The grid with these weights. Keys after their query, which are masked, are grey."""
        cells = colours(np.sqrt(weights))
        cells[:, ~np.tri(cells.shape[1], dtype=bool)] = GREY
        columns = math.ceil(math.sqrt(len(cells)))
        height, width, _ = self.maps[0].empty.shape
        size = (math.ceil(len(cells) / columns) * height, columns * width + self.scale.shape[1], 3)
        picture = np.full(size, 255, np.uint8)
        put(picture, self.scale, 0, columns * width, above=0.0, before=0.0)
        for head, (each, filled) in enumerate(zip(self.maps, cells, strict=True)):
            y, x = head // columns * height, head % columns * width
            picture[y : y + height, x : x + width] = each.fill(filled)
        return picture


def score_image(values: Float[np.ndarray, "layer head"], top: float) -> Picture:
    """A heat map of layers by heads, each cell with its number; grey where there is none.

    `top` has the darkest colour at every step, so that two steps can be compared.
    """
    empty = _empty_scores(*values.shape)
    cells = colours(np.clip(values / top, 0, 1))
    cells[~np.isfinite(values)] = GREY
    picture = empty.fill(cells)
    rounded = np.round(values, 2) + 0.0  # no -0.00
    for (layer, head), value in np.ndenumerate(rounded):
        number = write(f"{value:.{2 if value < 10 else 1}f}" if np.isfinite(value) else "-")
        y, x = empty.top + layer * empty.height, empty.left + head * empty.width
        cell = picture[y : y + empty.height, x : x + empty.width]
        is_dark = cells[layer, head].mean() < 128
        if is_dark:  # white on dark: drawn in the negative
            np.subtract(255, cell, out=cell)
        put(picture, number, y + empty.height / 2, x + empty.width / 2)
        if is_dark:
            np.subtract(255, cell, out=cell)
    return picture


@cache
def _empty_scores(n_layers: int, n_heads: int) -> HeatMap:
    rows, columns = ([str(index) for index in range(size)] for size in (n_layers, n_heads))
    return HeatMap("", rows, columns, ("layer", "head"), SCORE_CELL)
