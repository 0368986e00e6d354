"""Attention maps of a fixed probe text, logged again and again while the heads form.

The maps themselves go to the Attention tab. Beside them stands, less often because it takes longer,
one image a layer: a heat map for every head, with the probe's tokens on both axes. The colour scale
is the same at every step, so that two steps can be compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from model import GPT
from observe.figures import (
    GROUND,
    INK,
    NOTHING,
    colours,
    drawable,
    font,
    write_upwards,
)
from observe.heads import HeadScores, maps_of
from observe.summaries import add_image
from tensorboard_attention import add_attention
from training.observer import Observer, StepMetrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

# More tokens than this make labels that nobody can read in an image.
MAX_PROBE_TOKENS = 24
# Of the validation split, when no probe is given.
PROBE_TOKENS = 64


@dataclass
class AttentionConfig:
    """Maps and scores are logged every `every` steps (0: never, nor images), and with images every
    `images_every` steps (0: none), for the text `probe` (None: the validation split's start).
    """

    every: int
    images_every: int
    probe: str | None

    def __post_init__(self) -> None:
        for field in ("every", "images_every"):
            if (value := getattr(self, field)) < 0:
                raise ValueError(f"{field}: {value} is out of range; give 0 (never) or more steps")
        if self.probe == "":
            raise ValueError(
                "probe: is empty; give a text, or null for the start of the validation split"
            )


class AttentionMaps(Observer):
    """Logs the maps of a probe: for the Attention tab whole, under `tag`, and as images, under
    `<tag>/layer <n>`, of its first MAX_PROBE_TOKENS. With `scores`, those too: the tab then shows
    them, measured on texts that suit them, instead of the probe's own.

    `probe` pairs each token with its bytes; what is over the context length is left out. The last
    of `max_steps` is always logged.
    """

    def __init__(
        self,
        writer: SummaryWriter,
        model: GPT,
        probe: list[tuple[int, bytes]],
        every: int,
        images_every: int,
        max_steps: int,
        scores: HeadScores | None = None,
        tag: str = "attention",
    ) -> None:
        self.writer, self.model = writer, model
        self.every, self.images_every = every, images_every
        self.scores, self.tag = scores, tag
        self.max_steps = max_steps
        probe = probe[: model.config.context_length]
        self.probe = torch.tensor([[token for token, _ in probe]])
        self.texts = [spelled.decode(errors="backslashreplace") for _, spelled in probe]
        self.labels = [token_label(spelled) for _, spelled in probe[:MAX_PROBE_TOKENS]]
        self.figure: HeadsFigure | None = None

    def on_start(self, step: int) -> None:
        if step == 0:
            self.log(step, images=self.images_every > 0)

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        is_last = step == self.max_steps
        images = self.images_every > 0 and (is_last or step % self.images_every == 0)
        if images or is_last or step % self.every == 0:
            self.log(step, images)

    def log(self, step: int, images: bool) -> list[Float[Tensor, "1 head query key"]]:
        """Log the maps as they are now, with `images` as pictures too; return them."""
        maps = maps_of(self.model, self.probe)
        found = self.scores.log(step, images) if self.scores else {}
        better = {name: [*torch.from_numpy(values)] for name, values in found.items()}
        add_attention(self.writer, self.tag, maps, self.texts, step, better)
        if images:
            self._draw(maps, step)
        self.writer.flush()
        return maps

    def _draw(self, maps: list[Float[Tensor, "1 head query key"]], step: int) -> None:
        n = len(self.labels)
        for layer, (weights,) in enumerate(maps):
            if self.figure is None:
                self.figure = HeadsFigure(self.labels, n_heads=weights.shape[0])
            image = self.figure.draw(weights[:, :n, :n].numpy())
            add_image(self.writer, f"{self.tag}/layer {layer}", image, step)


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
