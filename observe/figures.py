"""Small pictures for TensorBoard's image tab, drawn by Pillow: Matplotlib's figures take a tenth of
a second each."""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

CELL_WIDTH, CELL_HEIGHT, MARGIN, TOP = 64, 36, 70, 26
INK, GROUND, NOTHING = (30, 30, 30), (255, 255, 255), (230, 230, 230)
OKLAB_TO_LMS = np.array(
    [
        [1, 0.3963377774, 0.2158037573],
        [1, -0.1055613458, -0.0638541728],
        [1, -0.0894841775, -1.291485548],
    ]
)
LMS_TO_SRGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.707614701],
    ]
)


@cache
def font(size: int) -> Any:
    """DejaVu Sans, which has most of the world's letters; Matplotlib brings it."""
    from PIL import ImageFont

    matplotlib = find_spec("matplotlib")  # to import it would take as long as ten pictures
    assert matplotlib is not None and matplotlib.origin is not None
    path = Path(matplotlib.origin).parent / "mpl-data/fonts/ttf/DejaVuSans.ttf"
    return ImageFont.truetype(str(path), size)


@cache
def is_known(letter: str) -> bool:
    """Whether the font has it: else it draws the same box as for what nobody has."""
    return bytes(font(10).getmask(letter)) != bytes(font(10).getmask("\U0010ffff"))


def drawable(text: str) -> str:
    """What the font cannot draw would be a box like any other: its code says more."""
    return "".join(c if is_known(c) else f"U+{ord(c):04X}" for c in text)


def colours(values: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape 3"]:
    """From nearly white (0) by way of red to dark violet (1), in 256 steps, as in the tab.

    Lightness falls evenly (OKLab, Björn Ottosson 2020), also to colour-blind people and in print.
    """
    return _scale()[np.rint(np.nan_to_num(values) * 255).astype(np.uint8)]


@cache
def _scale() -> UInt8[np.ndarray, "256 3"]:
    t = np.linspace(0, 1, 256)
    chroma, hue = 0.18 * np.sin(np.pi * t), np.radians(90 - 165 * t)
    lab = np.stack([0.985 - 0.76 * t, chroma * np.cos(hue), chroma * np.sin(hue)])
    cones = OKLAB_TO_LMS @ lab
    linear = np.clip(LMS_TO_SRGB @ cones**3, 0, 1)
    gamma = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(255 * gamma.T).astype(np.uint8)


def write_upwards(picture: Any, place: tuple[int, int], text: str, size: int) -> None:
    """Text that reads from below to above, its middle line at x and its end at y."""
    from PIL import Image, ImageDraw

    box = (math.ceil(font(size).getlength(text)) + 1, size + 4)
    lying = Image.new("RGB", box, GROUND)
    ImageDraw.Draw(lying).text((0, box[1] / 2), text, INK, font(size), anchor="lm")
    x, y = place
    picture.paste(lying.rotate(90, expand=True), (x - box[1] // 2, y))


def score_image(
    values: Float[np.ndarray, "layer head"], top: float
) -> UInt8[np.ndarray, "height width 3"]:
    """A heat map of layers by heads, each cell with its number; `top` has the darkest colour, so
    that two steps can be compared. NaN is grey."""
    from PIL import Image, ImageDraw

    n_layers, n_heads = values.shape
    picture = Image.new(
        "RGB", (MARGIN + n_heads * CELL_WIDTH + 1, TOP + n_layers * CELL_HEIGHT + 1), GROUND
    )
    draw = ImageDraw.Draw(picture)
    fills = colours(np.clip(values / top, 0, 1))
    for head in range(n_heads):
        x = MARGIN + (head + 0.5) * CELL_WIDTH
        draw.text((x, TOP / 2), f"head {head}", INK, font(14), anchor="mm")
    for layer in range(n_layers):
        y = TOP + layer * CELL_HEIGHT
        draw.text((MARGIN - 6, y + CELL_HEIGHT / 2), f"layer {layer}", INK, font(14), anchor="rm")
        for head in range(n_heads):
            x, value = MARGIN + head * CELL_WIDTH, values[layer, head]
            known = np.isfinite(value)
            fill = tuple(fills[layer, head].tolist()) if known else NOTHING
            draw.rectangle((x, y, x + CELL_WIDTH - 1, y + CELL_HEIGHT - 1), fill)
            ink = GROUND if known and value > 0.45 * top else INK
            middle = (x + CELL_WIDTH / 2, y + CELL_HEIGHT / 2)
            told = f"{value:.2f}" if value < 10 else f"{value:.1f}"
            draw.text(middle, told if known else "-", ink, font(14), anchor="mm")
    return np.asarray(picture)


def token_label(token: bytes, longest: int = 14) -> str:
    """A token as an axis label: short, with white space and lone bytes made visible."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in token)
    text = text.replace(" ", "·").replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍")
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


class HeadsFigure:
    """A grid of labelled heat maps, one a head, beside one colour scale.

    Only the cells change from picture to picture, and all heads have the same labels: one empty
    map and the scale are drawn once, and `draw` fills in the cells of every head.
    """

    def __init__(self, labels: list[str], n_heads: int) -> None:
        from PIL import Image, ImageDraw

        self.labels = [drawable(each) for each in labels]
        n = len(labels)
        self.future = np.triu(np.ones((n, n), dtype=bool), k=1)
        self.cell = max(12, math.ceil(150 / n))
        longest = math.ceil(max(font(10).getlength(each) for each in self.labels))
        self.top, self.left, side = 18, longest + 26, n * self.cell
        height = self.top + side + longest + 26
        empty = Image.new("RGB", (self.left + side + 14, height), GROUND)
        draw = ImageDraw.Draw(empty)
        for index, label in enumerate(self.labels):
            middle = round((index + 0.5) * self.cell)
            draw.text((self.left - 5, self.top + middle), label, INK, font(10), anchor="rm")
            draw.line((self.left - 3, self.top + middle, self.left, self.top + middle), INK)
            x, bottom = self.left + middle, self.top + side
            draw.line((x, bottom, x, bottom + 3), INK)
            write_upwards(empty, (x, bottom + 5), label, 10)
        draw.text(
            (self.left + side / 2, height - 9), "key: attended to", INK, font(11), anchor="mm"
        )
        query = font(11).getlength("query: attends")
        write_upwards(empty, (9, round(self.top + side / 2 - query / 2)), "query: attends", 11)
        self.empty_maps = []
        for head in range(n_heads):
            named = empty.copy()
            middle = self.left + side / 2
            ImageDraw.Draw(named).text((middle, 8), f"head {head}", INK, font(12), anchor="mm")
            self.empty_maps.append(np.asarray(named))

        self.columns = math.ceil(math.sqrt(n_heads))
        self.rows = math.ceil(n_heads / self.columns)
        self.scale = scale(self.rows * height, self.top, self.rows * height - longest - 26)

    def draw(
        self, weights: Float[np.ndarray, "head query key"]
    ) -> UInt8[np.ndarray, "height width 3"]:
        """The grid with these weights as an RGB image."""
        cells = colours(np.sqrt(weights))
        cells[:, self.future] = NOTHING
        cells = cells.repeat(self.cell, axis=1).repeat(self.cell, axis=2)
        maps = [each.copy() for each in self.empty_maps]
        for each, filled in zip(maps, cells, strict=True):
            height, width, _ = filled.shape
            each[self.top : self.top + height, self.left : self.left + width] = filled
        maps += [np.full_like(maps[0], 255)] * (self.rows * self.columns - len(maps))
        rows = [
            np.hstack(maps[start : start + self.columns])
            for start in range(0, len(maps), self.columns)
        ]
        return np.hstack([np.vstack(rows), self.scale])


def scale(height: int, top: int, bottom: int) -> UInt8[np.ndarray, "height width 3"]:
    """What the colours mean. The square root lifts small weights: a head that spreads out must not
    look empty."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (76, height), GROUND)
    strip = colours(np.linspace(1, 0, bottom - top)[:, None]).repeat(14, axis=1)
    picture.paste(Image.fromarray(strip), (8, top))
    draw = ImageDraw.Draw(picture)
    for value in (0, 0.01, 0.05, 0.1, 0.25, 0.5, 1):
        y = round(bottom - math.sqrt(value) * (bottom - top))
        draw.line((22, y, 25, y), INK)
        draw.text((28, y), f"{value:g}", INK, font(10), anchor="lm")
    told = "attention weight (each row sums to 1)"
    if font(11).getlength(told) > top + bottom:  # it would begin above the picture
        told = "weight"
    write_upwards(picture, (66, round((top + bottom - font(11).getlength(told)) / 2)), told, 11)
    return np.asarray(picture)
