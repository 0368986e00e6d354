"""Attention maps of a fixed probe text, logged repeatedly while the heads form.

The maps go to the Attention tab. If asked for, there are also images, one per layer: a heat map of
every head, with the probe's tokens on both axes. The colour scale is the same at every step, so
that steps can be compared. TensorBoard's cards show them too small to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from data import Tokenizer
from errors import check_range
from model import GPT
from observe.figures import draw_heads, token_label
from observe.heads import HeadScores, maps_of
from tensorboard_attention import add_attention
from training.callback import Callback

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from observe.context import RunContext
    from training.trainer import Trainer

Maps = Float[Tensor, "1 head query key"]

# More tokens than this make the labels of an image illegible.
MAX_IMAGE_TOKENS = 24
# Without a given probe: how short a document may be, and how much of the validation split is
# searched for the shortest. A whole document also shows what it repeats at its end.
N_PROBE_TOKENS = 64
N_SEARCHED_TOKENS = 4096
TAG = "attention"


@dataclass
class AttentionConfig:
    """Maps and scores of the text `probe` are logged every `every` steps (0: never, and no images),
    and images of maps every `images_every` steps (0: never). None is `default_probe`.
    """

    every: int
    images_every: int
    probe: str | None = field(metadata={"free_text": True})

    def __post_init__(self) -> None:
        check_range("every", self.every, least=0)
        check_range("images_every", self.images_every, least=0)
        if self.probe == "":
            raise ValueError(
                "probe: is empty; give a text, or null for a text of the validation split"
            )


class AttentionMaps(Callback):
    """Logs the maps and scores of the probe at regular steps and at the last step.

    The scores are those of `HeadScores`, measured on texts that suit them.
    """

    def __init__(self, config: AttentionConfig, context: RunContext) -> None:
        self.config, self.stopwatch = config, context.stopwatch
        tokenizer = context.dataset.tokenizer
        text = config.probe
        tokens = default_probe(context) if text is None else tokenizer.encode(text)
        tokens = tokens[: context.model.config.context_length]
        self.probe = Probe(context.writer, context.model, tokenizer, tokens, TAG)
        self.scores = HeadScores(context)

    def on_start(self, trainer: Trainer) -> None:
        if trainer.state.step == 0:
            self._log(0, images=self.config.images_every > 0)

    def on_step(self, trainer: Trainer) -> None:
        images = self.config.images_every > 0 and trainer.is_due(self.config.images_every)
        if images or trainer.is_due(self.config.every):
            self._log(trainer.state.step, images)

    def _log(self, step: int, images: bool) -> None:
        with self.stopwatch:
            self.probe.log(step, images, self.scores.log(step), self.scores.measured)


def default_probe(context: RunContext) -> list[int]:
    """A short whole document of the validation split; the start of a split that has none."""
    tokens = context.dataset.val[:N_SEARCHED_TOKENS]
    starts = context.document_starts(tokens)
    if starts is not None:
        lengths = np.diff(starts)
        longest = context.model.config.context_length
        fits = np.flatnonzero((lengths >= N_PROBE_TOKENS) & (lengths <= longest))
        if len(fits):
            chosen = fits[lengths[fits].argmin()]
            return tokens[starts[chosen] : starts[chosen + 1]].tolist()
    return tokens[:N_PROBE_TOKENS].tolist()


class Probe:
    """A text whose attention maps are logged under `tag`, and the images of its first tokens under
    `<tag>/layer <n>`."""

    def __init__(
        self,
        writer: SummaryWriter,
        model: GPT,
        tokenizer: Tokenizer,
        tokens: Sequence[int],
        tag: str,
    ) -> None:
        self.writer, self.model, self.tag = writer, model, tag
        self.tokens = torch.tensor([tokens])
        self.spelled = [tokenizer.decode_bytes([token]) for token in tokens]
        self.labels = [token_label(each) for each in self.spelled[:MAX_IMAGE_TOKENS]]

    def log(
        self,
        step: int,
        images: bool,
        scores: Mapping[str, np.ndarray] | None = None,
        measured: Mapping[str, str] | None = None,
    ) -> list[Maps]:
        """Log the current maps, with `images` also as pictures; return them.

        scores: by name, (layer, head), to show instead of those of this text.
        measured: by name, the text on which these scores were measured.
        """
        maps = maps_of(self.model, self.tokens)
        given = {name: list(values) for name, values in (scores or {}).items()}
        add_attention(self.writer, self.tag, maps, self.spelled, step, given, measured=measured)
        n = len(self.labels)
        for layer, (weights,) in enumerate(maps if images else ()):
            image = draw_heads(self.labels, weights[:, :n, :n].numpy())
            self.writer.add_image(f"{self.tag}/layer {layer}", image, step, dataformats="HWC")
        self.writer.flush()
        return maps
