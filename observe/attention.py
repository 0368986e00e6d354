"""Attention maps of a fixed probe text, logged again and again while the heads form.

The maps themselves go to the Attention tab. Beside them stands, less often because it takes longer,
one image a layer: a heat map for every head, with the probe's tokens on both axes. The colour scale
is the same at every step, so that two steps can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from model import GPT
from observe.figures import HeadsFigure, token_label
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
