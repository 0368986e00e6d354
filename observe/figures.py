"""Small pictures for TensorBoard's image tab, drawn without Matplotlib's figures, which take a
tenth of a second each: its colours and font alone."""

from __future__ import annotations

import io
import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt8

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

CELL_WIDTH, CELL_HEIGHT, MARGIN, TOP = 64, 36, 70, 26
INK, GROUND, NOTHING = (30, 30, 30), (255, 255, 255), (230, 230, 230)


def image_summary(tag: str, image: UInt8[np.ndarray, "height width 3"]) -> Summary:
    """What `SummaryWriter.add_image` would write, in a third of its time: quickly compressed."""
    from PIL import Image
    from tensorboard.compat.proto.summary_pb2 import Summary

    png = io.BytesIO()
    Image.fromarray(image).save(png, "png", compress_level=1)
    height, width, _ = image.shape
    encoded = Summary.Image(
        height=height, width=width, colorspace=3, encoded_image_string=png.getvalue()
    )
    return Summary(value=[Summary.Value(tag=tag, image=encoded)])


@cache
def font(size: int) -> Any:
    """DejaVu Sans, which has most of the world's letters."""
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf", size)


@cache
def known_letters() -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(font(10).path).get_charmap())


def drawable(text: str) -> str:
    """What the font cannot draw would be a box like any other: its code says more."""
    return "".join(c if ord(c) in known_letters() else f"U+{ord(c):04X}" for c in text)


def colours(values: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape 3"]:
    """From pale yellow (0) by way of red to black (1), evenly, also to colour-blind people."""
    import matplotlib

    return matplotlib.colormaps["magma_r"](values, bytes=True)[..., :3].copy()


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
