"""Attention maps of a layer as one picture, for TensorBoard's Images tab."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import distribution
from itertools import accumulate
from pathlib import Path
from unicodedata import category

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw, ImageFont

FONT = Path(
    str(distribution("matplotlib").locate_file("matplotlib/mpl-data/fonts/ttf/DejaVuSans.ttf"))
)
# In pixels: of letters, of a weight, between parts. A map of 32 tokens is as wide as TensorBoard's
# cards, which would shrink a wider picture.
SIZE, CELL, GAP = 9, 9, 6
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
    visible in print and to colour-blind people.
    """
    levels = np.rint(255 * np.nan_to_num(values))  # of a run that diverges: NaN
    return _scale()[levels.astype(np.uint8)]


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
        VISIBLE.get(part)
        or (f"\\u{{{ord(part):x}}}" if len(part) == 1 and category(part)[0] in "CZ" else part)
        for part in re.findall(r"\\x[0-9a-f]{2}|.", token.decode(errors="backslashreplace"), re.S)
    ]
    if len("".join(shown)) > longest:
        ends = accumulate(map(len, shown))
        shown = [part for part, end in zip(shown, ends, strict=True) if end < longest] + ["…"]
    return "".join(shown) or "∅"


def draw_heads(
    labels: Sequence[str], weights: Float[np.ndarray, "head token token"]
) -> UInt8[np.ndarray, "height width 3"]:
    """One heat map per head, below each other, with queries as rows, keys as columns and tokens as
    labels. Keys after their query, which are masked, are grey. Letters that the font lacks are
    boxes."""
    font = ImageFont.truetype(str(FONT), SIZE)
    margin = GAP + math.ceil(max(font.getlength(label) for label in labels))
    side = CELL * len(labels)
    box = margin + side + GAP
    high = len(weights) * (box + SIZE + GAP) + GAP
    picture = Image.new("RGB", (box + GAP, high), "white")
    draw = ImageDraw.Draw(picture)
    # The square root lifts small weights: a head that spreads out must not look empty.
    cells = colours(np.sqrt(weights))
    cells[:, ~np.tri(len(labels), dtype=bool)] = GREY
    names = Image.new("RGB", (margin - GAP, side), "white")
    for row, label in enumerate(labels):
        place = (margin - GAP, (row + 0.5) * CELL)
        ImageDraw.Draw(names).text(place, label, "black", font, anchor="rm")
    for head, pixels in enumerate(cells):
        top = head * (box + SIZE + GAP) + GAP
        map_left, map_top = margin, top + SIZE + GAP
        draw.text((map_left + side / 2, top), f"head {head}", "black", font, anchor="mt")
        heat_map = Image.fromarray(pixels).resize((side, side), Image.Resampling.NEAREST)
        picture.paste(heat_map, (map_left, map_top))
        picture.paste(names, (GAP // 2, map_top))
        picture.paste(names.rotate(90, expand=True), (map_left, map_top + side + GAP // 2))
    return np.asarray(picture)
