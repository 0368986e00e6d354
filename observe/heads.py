"""The scores of every head, logged repeatedly while the heads form.

Promises: each score of `tensorboard_attention.scores` is measured on texts for which it is
meaningful, the same ones at every step, and logged as one heat map (layers by heads) per score and
one scalar per layer, that of its largest head. The Attention tab has the curves of all heads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from data.batches import UNSCORED
from data.mentions import copy_texts
from model import GPT, record_attention
from observe.figures import score_image
from observe.importance import held_out, importance
from observe.summaries import add_image, add_scalars
from tensorboard_attention.scores import SCORES, measure

if TYPE_CHECKING:
    from observe.observed import ObservedRun

# Enough for stable means, and few enough to take little time.
N_TEXTS, N_TOKENS = 4, 64


class Texts(NamedTuple):
    """Texts of equal length, and for scores that need them the keys that count for each query."""

    tokens: Int[Tensor, "text token"]
    targets: Bool[np.ndarray, "text token token"] | None = None


def maps_of(
    model: GPT, tokens: Int[Tensor, "batch token"]
) -> list[Float[Tensor, "batch head query key"]]:
    """The attention maps of every layer on the CPU, in float32, without dropout."""
    was_training = model.training
    model.eval()
    with torch.no_grad(), record_attention(model) as maps:
        model.hidden(tokens.to(next(model.parameters()).device))
    model.train(was_training)
    return [weights.float().cpu() for weights in maps]


def repeated(vocab_size: int, context_length: int) -> Int[Tensor, "batch token"]:
    """Random tokens, repeated once: attention to the first half can only come from copying."""
    half = min(N_TOKENS // 2, context_length // 2)
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(vocab_size, (N_TEXTS, half), generator=generator)
    return first.repeat(1, 2)


class HeadScores:
    """Measures and logs the scores of all heads of a model that is being trained."""

    def __init__(self, observed: ObservedRun) -> None:
        self.events, self.model = observed.events, observed.model
        context_length = self.model.config.context_length
        start = observed.validation_tokens(N_TEXTS * N_TOKENS)
        length = min(N_TOKENS, context_length, len(start))
        count = min(N_TEXTS, len(start) // length)
        # By what a score needs (see `tensorboard_attention.scores`).
        self.texts = {
            "maps": Texts(start[: count * length].view(count, length)),
            "tokens": Texts(repeated(self.model.vocab_size, context_length)),
        }
        copies = copy_texts(observed.corpus, observed.dataset.tokenizer, N_TEXTS, context_length)
        if copies:
            self.texts["targets"] = Texts(torch.from_numpy(copies[0]), copies[1])
        self.held_out = held_out(observed)
        where = {
            "maps": f"{count} validation text{'s' * (count > 1)}",
            "tokens": "random tokens, repeated",
            "targets": f"{N_TEXTS} tales",
            "losses": f"{int((self.held_out[1] != UNSCORED).sum())} validation tokens",
        }
        # By name of the score.
        self.measured = {
            each.name: where[each.needs]
            for each in SCORES
            if each.needs in self.texts or each.needs == "losses"
        }
        # Of the colour scales of heat maps.
        self.top = {
            "entropy": max(1.0, math.log2(length)),
            "mean distance": length / 2,
            "importance": 0.5,
        }

    def log(self, step: int) -> dict[str, Float[np.ndarray, "layer head"]]:
        """Measure, log and return the current scores."""
        found = measure_heads(self.model, self.texts) | importance(self.model, self.held_out)
        # Names that sort after those of the loss, with which TensorBoard's first page then begins.
        scalars = {
            f"score {name}/layer {layer}, largest head": float(np.nanmax(heads))
            for name, values in found.items()
            for layer, heads in enumerate(values)
            if np.isfinite(heads).any()
        }
        add_scalars(self.events, scalars, step)
        for name, values in found.items():
            image = score_image(values, self.top.get(name, 1.0))
            add_image(self.events, f"scores/{name}", image, step)
        return found


def measure_heads(
    model: GPT, texts: Mapping[str, Texts]
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Every score of attention for which there are `texts`, by what it needs."""
    found: dict[str, list[np.ndarray]] = {}
    for needs, (tokens, targets) in texts.items():
        maps = [each.numpy() for each in maps_of(model, tokens)]
        inputs: dict[str, Any] = {"maps": (), "tokens": (tokens.numpy(),), "targets": (targets,)}
        found |= measure(needs, maps, *inputs[needs])
    return {name: np.stack(values) for name, values in found.items()}
