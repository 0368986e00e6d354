"""The scores of every head, logged repeatedly while the heads form.

Promises: each score of `tensorboard_attention.scores` is measured on texts for which it is
meaningful, the same ones at every step. The Attention tab has the curves of all heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from data.batches import UNSCORED
from data.roles import tale_texts
from model import GPT, eval_mode, record_attention, wiring_matrices
from observe.context import RunContext
from observe.importance import held_out, importance
from tensorboard_attention.scores import SCORES, count_queries, measure

# Enough for stable means, and few enough to take little time.
N_TEXTS, N_TOKENS = 4, 64
MIN_DISTINCT = 8  # different tokens; repeats of fewer show no copying
SONG = "the song of a tale, where it says what comes next"
N_COUNTED = 50_000  # tokens of the validation split, of which those that are repeated are drawn


class Texts(NamedTuple):
    """Texts of equal length.

    inputs: by the `needs` of a score (see `tensorboard_attention.scores`), the arguments of its
        `measure` after the maps.
    queries: the ones that count for scores that need "tokens"; None: all.
    """

    tokens: Int[Tensor, "text token"]
    inputs: Mapping[str, tuple[np.ndarray, ...]]
    queries: Bool[np.ndarray, "text token"] | None = None

    def counted(self, needs: str) -> Bool[np.ndarray, "text 1 token 1"] | np.bool_:
        """Factors by which the maps are multiplied: a query whose weights are all zero does not
        count."""
        if needs != "tokens" or self.queries is None:
            return np.True_
        return self.queries[:, None, :, None]


def maps_of(
    model: GPT, tokens: Int[Tensor, "batch token"]
) -> list[Float[Tensor, "batch head query key"]]:
    """The attention maps of every layer on the CPU, in float32, without dropout."""
    with torch.no_grad(), eval_mode(model), record_attention(model) as maps:
        model.hidden(tokens.to(next(model.parameters()).device))
    return [weights.float().cpu() for weights in maps]


def random_ids(vocab_size: int, half: int) -> Int[Tensor, "text token"]:
    """`half` random ids, repeated once: attention to the first half can only come from copying. All
    ids are equally likely, which makes a text that can be unlike any that the model was trained
    on."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocab_size, (N_TEXTS, half), generator=generator).repeat(1, 2)


def repeated_tokens(
    tokens: Int[Tensor, " n_tokens"], half: int
) -> Int[Tensor, "text token"] | None:
    """Different tokens of a text, drawn by their frequency, up to `half`, and repeated once; None
    if it has few different ones."""
    ids, counts = tokens.unique(return_counts=True)
    if half < 2 or len(ids) < MIN_DISTINCT:
        return None
    generator, frequency = torch.Generator().manual_seed(0), counts.float().expand(N_TEXTS, -1)
    drawn = torch.multinomial(frequency, min(half, len(ids)), generator=generator)
    return ids[drawn].repeat(1, 2)


def first_places(tokens: Int[Tensor, "text token"]) -> Int64[np.ndarray, "text token"]:
    """For scores of repeats: the place in the first half, for texts whose second half repeats it.
    Unlike a token, none is there twice."""
    return np.tile(np.arange(tokens.shape[1] // 2), (len(tokens), 2))


class WiredText(NamedTuple):
    """A text in which heads copy, and the tokens from which they do: only there do they read what
    makes them copy. where: what it is, in words."""

    tokens: Int[Tensor, " token"]
    queries: Bool[Tensor, " token"]
    where: str


def wired_text(texts: Sequence[Texts], where: Mapping[str, str]) -> WiredText | None:
    """Of the texts on which induction is measured, that with the most tokens that count."""
    for tokens, inputs, queries in texts:
        if "tokens" in inputs:
            half = tokens.shape[1] // 2  # from which on tokens are repeated, where there is no song
            counted = np.tile(np.arange(2 * half) >= half, (len(tokens), 1))
            if queries is not None:
                counted = queries
            text = counted.sum(1).argmax()
            end = np.flatnonzero(counted[text])[-1] + 1  # what comes later changes nothing
            place = where["tokens"] if queries is None else SONG
            return WiredText(tokens[text, :end], torch.from_numpy(counted[text, :end]), place)
    return None


class HeadScores:
    """Measures the scores of all heads of a model that is being trained."""

    def __init__(self, context: RunContext) -> None:
        self.model = context.model
        self.held_out = held_out(context)
        self.texts, where = score_texts(context)
        where["losses"] = "validation text"
        # By name of the score.
        self.measured = {score.name: where[score.needs] for score in SCORES if score.needs in where}
        n_scored = int((self.held_out[1] != UNSCORED).sum())
        self.counts = count_of(self.texts) | {
            score.name: n_scored for score in SCORES if score.needs == "losses"
        }
        self.wired = wired_text(self.texts, where)
        if self.wired:
            self.measured["wiring"] = self.wired.where

    def measure(self, with_importance: bool = True) -> dict[str, Float[np.ndarray, "layer head"]]:
        """The scores of the model as it is. The importance takes most of the time."""
        found = measure_heads(self.model, self.texts)
        return found | (importance(self.model, self.held_out) if with_importance else {})

    def wiring(self) -> Float[Tensor, "3 layer head layer writer"] | None:
        """What heads read where a text repeats itself; None without such a text."""
        if self.wired is None:
            return None
        return wiring_matrices(self.model, self.wired.tokens, self.wired.queries)


def score_texts(context: RunContext) -> tuple[list[Texts], dict[str, str]]:
    """The texts on which scores are measured, and what they are, by what a score needs.

    Induction is measured where the corpus at hand has it: on the songs of tales, and else on tokens
    that are repeated, if it has enough different ones.
    """
    tokenizer, model = context.dataset.tokenizer, context.model
    context_length = model.config.context_length
    start = context.validation_tokens(N_TEXTS * N_TOKENS)
    length = min(N_TOKENS, context_length, len(start))
    count = min(N_TEXTS, len(start) // length)
    texts = [Texts(start[: count * length].view(count, length), {"maps": ()})]
    where = {"maps": f"{count} validation text{'s' * (count > 1)}"}
    half = min(N_TOKENS, context_length) // 2
    if half > 1:  # otherwise what follows the first occurrence is the second
        ids = random_ids(model.vocab_size, half)
        texts.append(Texts(ids, {"random ids": (first_places(ids),)}))
        where["random ids"] = "random ids, repeated"
    tales = tale_texts(context.corpus, tokenizer, N_TEXTS, context_length)
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
        own = repeated_tokens(context.validation_tokens(N_COUNTED), half)
        if own is not None:
            texts.append(Texts(own, {"tokens": (first_places(own),)}))
            where["tokens"] = "tokens of the validation text, repeated"
    return texts, where


def _maps_of_all(model: GPT, texts: Sequence[Texts]) -> list[list[np.ndarray]]:
    """The maps of every layer for each of the texts; those of one length are read together."""
    found: dict[int, list[np.ndarray]] = {}
    for length in {text.tokens.shape[1] for text in texts}:
        places = [i for i, text in enumerate(texts) if text.tokens.shape[1] == length]
        sizes = [len(texts[i].tokens) for i in places]
        maps = maps_of(model, torch.cat([texts[i].tokens for i in places]))
        parts = zip(*(layer.split(sizes) for layer in maps), strict=True)
        found |= {i: [part.numpy() for part in mine] for i, mine in zip(places, parts, strict=True)}
    return [found[i] for i in range(len(texts))]


def measure_heads(model: GPT, texts: Sequence[Texts]) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Every score of attention for which there are `texts`."""
    found: dict[str, list[np.ndarray]] = {}
    for text, maps in zip(texts, _maps_of_all(model, texts), strict=True):
        for needs, arrays in text.inputs.items():
            counted = [weights * text.counted(needs) for weights in maps]
            found |= measure(needs, counted, *arrays)
    return {name: np.stack(values) for name, values in found.items()}


def count_of(texts: Sequence[Texts]) -> dict[str, int]:
    """Over how many queries the scores of `measure_heads` are means."""
    found: dict[str, int] = {}
    for text in texts:
        n_texts, n = text.tokens.shape
        maps = np.ones((n_texts, 1, n, n))
        for needs, arrays in text.inputs.items():
            found |= count_queries(needs, [maps * text.counted(needs)], *arrays)
    return found
