"""What every head attends to, as numbers, again and again while the heads form.

Promises: each score of `tensorboard_attention.scores` is measured on texts for which it means
something, the same ones at every step; logged as a scalar a head, and as one heat map a score of
layers by heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from model import GPT, record_attention
from observe.figures import score_image
from observe.summaries import add_image, add_scalars
from tensorboard_attention import scores

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

# Enough for means that hold still, few enough to cost nothing.
N_TEXTS, N_TOKENS = 4, 64


def maps_of(
    model: GPT, tokens: Int[Tensor, "batch token"]
) -> list[Float[Tensor, "batch head query key"]]:
    """Every layer's attention over the texts, on the CPU, in float32, without dropout."""
    was_training = model.training
    model.eval()
    with torch.no_grad(), record_attention(model) as maps:
        model.hidden(tokens.to(next(model.parameters()).device))
    model.train(was_training)
    return [weights.float().cpu() for weights in maps]


def repeated(vocab_size: int, context_length: int) -> Int[Tensor, "batch token"]:
    """Random tokens, and the same once more: what is copied there, is copied by induction."""
    half = min(N_TOKENS // 2, context_length // 2)
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(vocab_size, (N_TEXTS, half), generator=generator)
    return first.repeat(1, 2)


def copy_targets(
    lengths: Sequence[int], mentions: Sequence[tuple[str, int, int]]
) -> Bool[Tensor, "token token"]:
    """For a text of known mentions, where a head that copies looks: rows predict, columns hold.

    lengths: bytes of every token. mentions: (name, first byte, last byte + 1), in order; a name's
    later mentions repeat its earlier ones.

    A row is marked where the next token begins a word that was mentioned before; in it, the
    columns of the tokens that spell the earlier mentions.
    """
    ends = torch.tensor(lengths).cumsum(0)
    starts = ends - torch.tensor(lengths)
    targets = torch.zeros(len(lengths), len(lengths), dtype=torch.bool)
    earlier: dict[str, Bool[Tensor, " token"]] = {}
    for name, start, end in mentions:
        spells = (starts < end) & (ends > start)
        if not spells.any():
            break  # the text was cut before it
        first = int(spells.nonzero()[0])
        if name in earlier and first > 0:
            targets[first - 1] |= earlier[name]
        earlier[name] = earlier.get(name, torch.zeros_like(spells)) | spells
    return targets.tril()


class HeadScores:
    """Logs the scores of all heads.

    tokens: the start of the validation split. stories: of tales, texts of one length with their
    `copy_targets`; None for other corpora.
    """

    def __init__(
        self,
        writer: SummaryWriter,
        model: GPT,
        tokens: Int[Tensor, " token"],
        stories: tuple[Int[Tensor, "batch token"], Bool[Tensor, "batch token token"]] | None,
    ) -> None:
        self.writer, self.model, self.stories = writer, model, stories
        length = min(N_TOKENS, model.config.context_length, len(tokens))
        count = min(N_TEXTS, len(tokens) // length)
        self.texts = tokens[: count * length].view(count, length)
        self.repeated = repeated(model.vocab_size, model.config.context_length)
        self.tops = {"entropy": max(1.0, math.log2(length)), "mean distance": length / 2}

    def log(self, step: int, images: bool) -> dict[str, Float[np.ndarray, "layer head"]]:
        """Measure, log and return all scores as they are now; with `images` as heat maps too."""
        found = measure_heads(self.model, self.texts, self.repeated, self.stories)
        scalars = {
            f"head {name}/layer {layer} head {head}": float(value)
            for name, values in found.items()
            for (layer, head), value in np.ndenumerate(values)
            if math.isfinite(value)
        }
        add_scalars(self.writer, scalars, step)
        if images:
            for name, values in found.items():
                image = score_image(values, self.tops.get(name, 1.0))
                add_image(self.writer, f"head scores/{name}", image, step)
        return found


def measure_heads(
    model: GPT,
    texts: Int[Tensor, "text token"],
    repeated: Int[Tensor, "repetition place"],
    stories: tuple[Int[Tensor, "story word"], Bool[Tensor, "story word word"]] | None = None,
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Every score of every head: what needs a repetition on `repeated`, the rest on `texts`."""
    text, again = maps_of(model, texts), maps_of(model, repeated)
    found: dict[str, Iterable[Tensor]] = {
        "entropy": map(scores.entropy, text),
        "mean distance": map(scores.mean_distance, text),
        "previous token": map(scores.previous_token, text),
        "first token": map(scores.first_token, text),
        "same token": map(scores.same_token, text),
        "duplicate token": (scores.duplicate_token(maps, repeated) for maps in again),
        "induction": (scores.induction(maps, repeated) for maps in again),
    }
    if stories:
        tokens, targets = stories
        found["copy"] = (scores.share(maps, targets) for maps in maps_of(model, tokens))
    return {name: torch.stack([*layers]).numpy() for name, layers in found.items()}
