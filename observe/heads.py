"""The scores of every head, logged repeatedly while the heads form.

Promises: each score of `tensorboard_attention.scores` is measured on texts for which it is
meaningful, the same ones at every step, and logged as one heat map (layers by heads) per score and
one scalar per layer, that of its largest head. The Attention tab has the curves of all heads.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from data.batches import UNSCORED
from data.mentions import tale_texts
from data.tokenizer import Tokenizer
from model import GPT, record_attention
from observe.figures import score_image
from observe.importance import held_out, importance
from observe.summaries import add_image, add_scalars
from tensorboard_attention.scores import SCORES, measure

if TYPE_CHECKING:
    from observe.observed import ObservedRun

# Enough for stable means, and few enough to take little time.
N_TEXTS, N_TOKENS = 4, 64
N_WORDS = 50_000  # tokens of the validation split, whose words are counted


class Texts(NamedTuple):
    """Texts of equal length.

    inputs: by what a score needs (see `tensorboard_attention.scores`), what it takes with the maps.
    queries: those that count for scores that need "tokens"; None: all.
    """

    tokens: Int[Tensor, "text token"]
    inputs: Mapping[str, tuple[np.ndarray, ...]]
    queries: Bool[np.ndarray, "text token"] | None = None


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


def random_ids(vocab_size: int, context_length: int) -> Int[Tensor, "text token"]:
    """Random ids, repeated once: attention to the first half can only come from copying. All ids
    are equally likely, which makes a text that can be unlike any that the model was trained on."""
    half = min(N_TOKENS // 2, context_length // 2)
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(vocab_size, (N_TEXTS, half), generator=generator)
    return first.repeat(1, 2)


def random_words(
    tokens: Int[Tensor, " n_tokens"], tokenizer: Tokenizer, context_length: int
) -> Int[Tensor, "text token"]:
    """Different words of a text, drawn by their frequency and repeated once; if it has few words,
    different tokens."""
    half = min(N_TOKENS // 2, context_length // 2)
    words = Counter(re.findall(r"(?<= )\w+(?= )", tokenizer.decode(tokens.tolist())))
    counts: Mapping[tuple[int, ...], int] = {(id,): n for id, n in Counter(tokens.tolist()).items()}
    if len(words) >= half:
        counts = {tuple(tokenizer.encode(" " + word)): n for word, n in words.items()}
    drawable, frequency = list(counts), np.array([*counts.values()])
    rng = np.random.default_rng(0)
    rows: list[list[int]] = []
    for _ in range(N_TEXTS):
        size = min(half, len(drawable))
        drawn = rng.choice(len(drawable), size, replace=False, p=frequency / frequency.sum())
        rows.append(list(chain.from_iterable(drawable[each] for each in drawn))[:half])
    length = min(map(len, rows))
    return torch.tensor([row[:length] for row in rows]).repeat(1, 2)


class HeadScores:
    """Measures and logs the scores of all heads of a model that is being trained."""

    def __init__(self, observed: ObservedRun) -> None:
        self.events, self.model = observed.events, observed.model
        self.held_out = held_out(observed)
        self.texts, where = score_texts(observed)
        where["losses"] = f"{int((self.held_out[1] != UNSCORED).sum())} validation tokens"
        # By name of the score.
        self.measured = {each.name: where[each.needs] for each in SCORES if each.needs in where}
        length = self.texts[0].tokens.shape[1]
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


def score_texts(observed: ObservedRun) -> tuple[list[Texts], dict[str, str]]:
    """The texts on which scores are measured, and what they are, by what a score needs.

    Induction is measured where the corpus at hand has it: on the songs of tales, and else on words
    that are repeated.
    """
    tokenizer, model = observed.dataset.tokenizer, observed.model
    context_length = model.config.context_length
    start = observed.validation_tokens(N_TEXTS * N_TOKENS)
    length = min(N_TOKENS, context_length, len(start))
    count = min(N_TEXTS, len(start) // length)
    ids = random_ids(model.vocab_size, context_length)
    texts = [
        Texts(start[: count * length].view(count, length), {"maps": ()}),
        Texts(ids, {"random ids": (ids.numpy(),)}),
    ]
    where = {
        "maps": f"{count} validation text{'s' * (count > 1)}",
        "random ids": "random ids, repeated",
    }
    tales = tale_texts(observed.corpus, tokenizer, N_TEXTS, context_length)
    if tales:
        inputs = {"targets": (tales.copies,)}
        where["targets"] = f"{N_TEXTS} tales"
        if tales.recalled.any():
            # Outside the song, no token has occurred before.
            inputs["tokens"] = (
                np.where(tales.songs, tales.tokens, -1 - np.arange(tales.tokens.shape[1])),
            )
            where["tokens"] = f"the songs of {N_TEXTS} tales"
        texts.append(Texts(torch.from_numpy(tales.tokens), inputs, tales.recalled))
    if "tokens" not in where:
        words = random_words(observed.validation_tokens(N_WORDS), tokenizer, context_length)
        texts.append(Texts(words, {"tokens": (words.numpy(),)}))
        where["tokens"] = "words of the validation text, repeated"
    return texts, where


def measure_heads(model: GPT, texts: Iterable[Texts]) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Every score of attention for which there are `texts`."""
    found: dict[str, list[np.ndarray]] = {}
    for tokens, inputs, queries in texts:
        maps = [each.numpy() for each in maps_of(model, tokens)]
        for needs, arrays in inputs.items():
            counted = maps
            if needs == "tokens" and queries is not None:  # a query without weights never counts
                counted = [each * queries[:, None, :, None] for each in maps]
            found |= measure(needs, counted, *arrays)
    return {name: np.stack(values) for name, values in found.items()}
