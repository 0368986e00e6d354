"""Attention maps of a layer as one picture, for TensorBoard's Images tab."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

# The scalable font of Pillow has neither accented or Greek letters nor ⏎.
FONT = Path(
    str(distribution("matplotlib").locate_file("matplotlib/mpl-data/fonts/ttf/DejaVuSans.ttf"))
)
# In pixels: of letters, of a weight, between parts.
SIZE, CELL, GAP = 9, 9, 6
GREY = (230, 230, 230)
VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥"}
# Red, green and blue of weights from 0 to 1: much as in the Attention tab.
SCALE = np.array([(250, 250, 250), (254, 162, 112), (212, 70, 110), (110, 45, 112), (28, 28, 28)])


def colours(values: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape 3"]:
    """From nearly white (0) through red to nearly black (1); NaN, of a run that diverges, as 0."""
    places = np.linspace(0, 1, len(SCALE))
    channels = [np.interp(np.nan_to_num(values), places, channel) for channel in SCALE.T]
    return np.stack(channels, -1).astype(np.uint8)


def token_label(token: bytes, longest: int = 14) -> str:
    """A token in at most `longest` characters, with white space, control characters and bytes that
    are not UTF-8 made visible."""
    text = token.decode(errors="backslashreplace")
    escapes = {letter: ascii(letter)[1:-1] for letter in text if not letter.isprintable()}
    shown = "".join((escapes | VISIBLE).get(letter, letter) for letter in text)
    return (shown if len(shown) <= longest else shown[: longest - 1] + "…") or "∅"


def draw_heads(
    labels: Sequence[str], weights: Float[np.ndarray, "head token token"]
) -> UInt8[np.ndarray, "height width 3"]:
    """One heat map per head, in a grid as wide as it is high, or nearly so, with queries as rows,
    keys as columns and tokens as labels. Keys after their query, which are masked, are grey.
    Letters that the font lacks are boxes."""
    from PIL import Image, ImageDraw, ImageFont  # not needed before the first picture

    font = ImageFont.truetype(str(FONT), SIZE)
    margin = GAP + math.ceil(max(font.getlength(label) for label in labels))
    side = CELL * len(labels)
    wide, high = margin + side + GAP, margin + side + GAP + SIZE + GAP
    columns = math.ceil(math.sqrt(len(weights)))
    rows = math.ceil(len(weights) / columns)
    picture = Image.new("RGB", (columns * wide + GAP, rows * high + GAP), "white")
    draw = ImageDraw.Draw(picture)
    # The square root lifts small weights: a head that spreads out must not look empty.
    cells = colours(np.sqrt(weights))
    cells[:, ~np.tri(len(labels), dtype=bool)] = GREY
    names = Image.new("RGB", (margin - GAP, side), "white")
    for row, label in enumerate(labels):
        place = (margin - GAP, (row + 0.5) * CELL)
        ImageDraw.Draw(names).text(place, label, "black", font, anchor="rm")
    for head, pixels in enumerate(cells):
        row, column = divmod(head, columns)
        left, top = column * wide, row * high + GAP
        map_left, map_top = left + margin, top + SIZE + GAP
        draw.text((map_left + side / 2, top), f"head {head}", "black", font, anchor="mt")
        heat_map = Image.fromarray(pixels).resize((side, side), Image.Resampling.NEAREST)
        picture.paste(heat_map, (map_left, map_top))
        picture.paste(names, (left + GAP // 2, map_top))
        picture.paste(names.rotate(90, expand=True), (map_left, map_top + side + GAP // 2))
    return np.asarray(picture)
