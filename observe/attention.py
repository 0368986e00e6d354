"""Attention maps of a fixed probe text, logged again and again while the heads form.

The maps themselves go to the Attention tab. Beside them stands one image a layer: a heat map for
every head, with the probe's tokens on both axes. The colour scale is the same at every step, so
that two steps can be compared.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from model import GPT, record_attention
from tensorboard_attention import add_attention
from training.observer import Observer, StepMetrics

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from torch.utils.tensorboard import SummaryWriter

# More tokens than this make labels that nobody can read.
MAX_PROBE_TOKENS = 32


@dataclass
class AttentionConfig:
    """Maps are drawn every `every` steps (0: never) for the text `probe` (None: the start of the
    validation split)."""

    every: int
    probe: str | None

    def __post_init__(self) -> None:
        if self.every < 0:
            raise ValueError(f"every: {self.every} is out of range; give 0 (never) or more steps")
        if self.probe == "":
            raise ValueError(
                "probe: is empty; give a text, or null for the start of the validation split"
            )


class AttentionMaps(Observer):
    """Logs the maps of a probe under `attention/probe`, its images under `attention/layer <n>`.

    `probe` pairs each token with its bytes; what is over MAX_PROBE_TOKENS or the
    context length is left out.
    """

    def __init__(
        self,
        writer: SummaryWriter,
        model: GPT,
        probe: list[tuple[int, bytes]],
        every: int,
    ) -> None:
        self.writer, self.model, self.every = writer, model, every
        probe = probe[: min(MAX_PROBE_TOKENS, model.config.context_length)]
        self.probe = torch.tensor([token for token, _ in probe])
        self.texts = [spelled.decode(errors="backslashreplace") for _, spelled in probe]
        self.labels = [token_label(spelled) for _, spelled in probe]
        self.figure: HeadsFigure | None = None

    def on_start(self, step: int) -> None:
        if step == 0:
            self._draw(step)

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        if step % self.every == 0:
            self._draw(step)

    def _draw(self, step: int) -> None:
        maps = attention_of(self.model, self.probe)
        add_attention(
            self.writer, "attention/probe", [each[None] for each in maps], self.texts, step
        )
        for layer, weights in enumerate(maps):
            if self.figure is None:
                self.figure = HeadsFigure(self.labels, n_heads=weights.shape[0])
            image = self.figure.draw(weights.numpy())
            self.writer._get_file_writer().add_summary(
                _summary(f"attention/layer {layer}", image), step
            )
        self.writer.flush()


def attention_of(
    model: GPT, tokens: Int[Tensor, " token"]
) -> list[Float[Tensor, "head query key"]]:
    """Every layer's attention weights over one text, on the CPU, in float32, without dropout."""
    was_training = model.training
    model.eval()
    with torch.no_grad(), record_attention(model) as maps:
        model(tokens[None].to(next(model.parameters()).device))
    model.train(was_training)
    return [weights[0].float().cpu() for weights in maps]


def _summary(tag: str, image: UInt8[np.ndarray, "height width 3"]) -> Summary:
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


def token_label(token: bytes) -> str:
    """A token as an axis label: short, with white space and lone bytes made visible."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in token)
    text = text.replace(" ", "·").replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍")
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= 14 else text[:13] + "…"


class HeadsFigure:
    """A grid of labelled heat maps, one a head, beside one colour scale.

    Only the colours of the cells change from picture to picture, and all heads have the same
    labels. So Matplotlib draws one empty map and the scale, once, and `draw` fills in the cells of
    every head: that takes a few milliseconds, a new figure a second.
    """

    def __init__(self, labels: list[str], n_heads: int) -> None:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import PowerNorm
        from matplotlib.figure import Figure
        from matplotlib.font_manager import findfont, get_font

        # What the font cannot draw would be a box like any other: its code says more.
        drawable = get_font(findfont("DejaVu Sans")).get_charmap()
        labels = [
            "".join(c if ord(c) in drawable else f"U+{ord(c):04X}" for c in each) for each in labels
        ]
        n = len(labels)
        self.future = np.triu(np.ones((n, n), dtype=bool), k=1)
        # The square root lifts small weights: a head that spreads out must not look empty.
        self.norm = PowerNorm(0.5, vmin=0, vmax=1)
        self.colours = matplotlib.colormaps["magma_r"].with_extremes(bad="0.9")

        # In pixels: a label of 7 points is 10 high, and each of its letters 6 wide.
        self.cell = max(12, math.ceil(150 / n))
        self.top, self.left = 15, 30 + 6 * max(map(len, labels))
        side = n * self.cell
        width, height = self.left + side + 15, self.top + side + self.left
        figure = Figure(figsize=(width / 100, height / 100), dpi=100)
        canvas = FigureCanvasAgg(figure)
        place = (self.left / width, self.left / height, side / width, side / height)
        self.axis = figure.add_axes(place, xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5))
        title = self.axis.set_title("", fontsize=9, pad=3, animated=True)
        self.axis.set_xticks(range(n), labels, rotation=90, fontsize=7, parse_math=False)
        self.axis.set_yticks(range(n), labels, fontsize=7, parse_math=False)
        self.axis.tick_params(length=2, pad=1)
        self.axis.set_xlabel("key: attended to", fontsize=8, labelpad=1)
        self.axis.set_ylabel("query: attends", fontsize=8, labelpad=1)
        canvas.draw()
        empty = canvas.copy_from_bbox(figure.bbox)
        self.empty_maps = []
        for head in range(n_heads):
            canvas.restore_region(empty)
            title.set_text(f"head {head}")
            self.axis.draw_artist(title)
            self.empty_maps.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())

        self.columns = math.ceil(math.sqrt(n_heads))
        self.rows = math.ceil(n_heads / self.columns)
        tall = self.rows * height
        beside = Figure(figsize=(0.8, tall / 100), dpi=100)
        canvas = FigureCanvasAgg(beside)
        bar = beside.colorbar(
            ScalarMappable(self.norm, self.colours),
            cax=beside.add_axes((0.1, self.left / tall, 0.15, 1 - (self.left + self.top) / tall)),
            ticks=[0, 0.01, 0.05, 0.1, 0.25, 0.5, 1],
        )
        bar.set_label("attention weight (each row sums to 1)", fontsize=8, labelpad=2)
        bar.ax.tick_params(labelsize=7)
        canvas.draw()
        self.scale = np.asarray(canvas.buffer_rgba())[..., :3].copy()

    def draw(
        self, weights: Float[np.ndarray, "head query key"]
    ) -> UInt8[np.ndarray, "height width 3"]:
        """The grid with these weights as an RGB image."""
        future = np.broadcast_to(self.future, weights.shape)
        cells = self.colours(self.norm(np.ma.masked_array(weights, future)), bytes=True)[..., :3]
        cells = cells.repeat(self.cell, axis=1).repeat(self.cell, axis=2)
        maps = [each.copy() for each in self.empty_maps]
        for each, colours in zip(maps, cells, strict=True):
            height, width, _ = colours.shape
            each[self.top : self.top + height, self.left : self.left + width] = colours
        maps += [np.full_like(maps[0], 255)] * (self.rows * self.columns - len(maps))
        rows = [
            np.hstack(maps[start : start + self.columns])
            for start in range(0, len(maps), self.columns)
        ]
        return np.hstack([np.vstack(rows), self.scale])
