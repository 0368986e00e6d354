"""Attention maps of a fixed probe text, logged repeatedly while the heads form.

The maps go to the Attention tab. A few of them are also images, one per layer, for a TensorBoard
without the tab: a heat map of every head, with the probe's tokens on both axes. The colour scale is
the same at every step, so that steps can be compared.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nlargest
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, UInt
from torch import Tensor

from common.errors import token_label
from data.floor import Floor, floor_of
from data.tales import Tales
from data.tokenizer import Tokenizer
from model import GPT, eval_mode, wiring_matrices
from observe.context import RunContext
from observe.figures import draw_heads
from observe.heads import HeadNames, documents_of, read_maps, spell
from store.results import TAG, last_names
from store.run import Run
from tensorboard_attention import Guesses, add_attention
from tensorboard_attention.naming import Names
from tensorboard_attention.scores import THIS_TEXT, Heads
from training.callback import Callback

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from training.trainer import Trainer

log = logging.getLogger("training")

Maps = Float[Tensor, "1 head query key"]

AUTO = "auto"
MAX_CHECKPOINTS = 20  # of a run, all of which have maps
PLACES = (0.1, 0.3, 1)  # in the whole run: of images
# More tokens than this make the labels of an image illegible.
MAX_IMAGE_TOKENS = 32
# Without a given probe: how short a document may be, and how much of the validation split is
# searched for the shortest. A whole document also shows what it repeats at its end.
N_PROBE_TOKENS = 64
N_SEARCHED_TOKENS = 4096
# Of what can come next: how many tokens, by each of the two, and with what probability.
MAX_SAID, MIN_SAID = 5, 0.001


@dataclass
class AttentionConfig:
    """Maps and scores of the text `probe` are logged every `every` steps (0: never), and at the
    first and the last step. None is `default_probe`.

    With auto, maps are logged often in the first 200 steps, in which heads form, and at regular
    checkpoints, unless there are more than MAX_CHECKPOINTS.
    """

    every: str
    probe: str | None

    def __post_init__(self) -> None:
        if self.every != AUTO and not re.fullmatch(r"\d{1,12}", self.every):
            raise ValueError(f"every: {self.every!r} is not a number of steps; give one, or auto")
        if self.probe == "":
            raise ValueError(
                "probe: is empty; give a text, or null for a text of the validation split"
            )

    @property
    def is_on(self) -> bool:
        return self.every == AUTO or int(self.every) > 0

    def has_maps(self, step: int, last: int, checkpoints: int = 0) -> bool:
        """Whether maps are logged after `step` steps of a run of `last` steps, which has a
        checkpoint every `checkpoints` steps (0: only at the end)."""
        if self.every != AUTO:
            return step == last or step % int(self.every) == 0
        later = max(100, last // 20)
        is_regular = step % (20 if step <= 200 else later) == 0
        has_few = 0 < last <= checkpoints * MAX_CHECKPOINTS
        is_kept = has_few and step % checkpoints == 0
        return step == 10 or is_regular or is_kept or has_images(step, last)


def has_images(step: int, last: int) -> bool:
    """Whether the maps that are logged after `step` steps of a run of `last` steps are images,
    too."""
    return step in {round(place * last) for place in PLACES}


class AttentionMaps(Callback):
    """Logs the maps of the probe, and what heads do over documents, at regular steps and at the
    last step."""

    def __init__(self, config: AttentionConfig, context: RunContext, writer: SummaryWriter) -> None:
        self.config, self.run = config, Run(context.folder)
        tokenizer, text = context.dataset.tokenizer, config.probe
        tokens = default_probe(context) if text is None else tokenizer.encode_document(text)
        tokens = tokens[: context.model.config.context_length]
        floor = floor_of(tokens, tokenizer) if isinstance(context.corpus, Tales) else None
        self.probe = Probe(writer, context.model, tokenizer, tokens, TAG, floor)
        self.heads: HeadNames | None = None
        try:
            documents = documents_of(context.model, context.dataset)
        except ValueError as error:
            log.warning("heads are named by the probe alone: %s", error)
        else:
            spelled = spell(tokenizer, context.model.vocab_size)
            self.heads = HeadNames(context.model, spelled, documents)
        self.names: Names = []  # those that were measured last

    def on_start(self, trainer: Trainer) -> None:
        if trainer.state.step == 0:
            self.on_step(trainer)
        else:
            with suppress(OSError, ValueError):  # of a damaged log
                self.names = last_names(self.run, trainer.state.step)

    def on_step(self, trainer: Trainer) -> None:
        step, last = trainer.state.step, trainer.config.max_steps
        if not self.config.has_maps(step, last, trainer.config.checkpoint_every):
            return
        with eval_mode(self.probe.model):
            if self.heads is None:
                maps = self.probe.log(step)
            else:
                heads, where = self.heads.measure(self.names), self.heads.documents.where
                self.names = heads.names
                maps = self.probe.log(step, heads, where, self.heads.wiring())
        if has_images(step, last):
            self.probe.draw(maps, step)


def default_probe(context: RunContext) -> list[int]:
    """A short whole document of the validation split; of a split that has none, the start, or its
    first whole word and what follows."""
    tokens, starts = context.dataset.val[:N_SEARCHED_TOKENS], context.dataset.val_starts
    if starts is not None:
        starts = starts[: np.searchsorted(starts, N_SEARCHED_TOKENS)]
        lengths = np.diff(starts)
        longest = context.model.config.context_length
        fits = np.flatnonzero((lengths >= N_PROBE_TOKENS) & (lengths <= longest))
        if len(fits):
            chosen = fits[lengths[fits].argmin()]
            return tokens[starts[chosen] : starts[chosen + 1]].tolist()
    first = 0 if starts is not None else first_word(context, tokens)
    return tokens[first : first + N_PROBE_TOKENS].tolist()


def first_word(context: RunContext, tokens: UInt[np.ndarray, " token"]) -> int:
    """Where the first whole word of a text begins: a document can be divided between the splits
    anywhere, so that its end begins in the middle of a word."""
    decode = context.dataset.tokenizer.decode_bytes
    spelled = [decode([token]) for token in tokens[:N_PROBE_TOKENS].tolist()]
    start = b"".join(spelled[:4]).decode(errors="ignore")
    has_documents = context.corpus is not None and context.corpus.adds_eos
    if has_documents and not start[:1].islower():
        return 0
    for place, (before, token) in enumerate(pairwise(spelled), 1):
        if token.strip() and (token[:1].isspace() or before[-1:].isspace()):
            return place
    return 0


class Probe:
    """A text whose attention maps are logged under `tag`; with its `floor`, if that is known, also
    what the model says of its tokens."""

    def __init__(
        self,
        writer: SummaryWriter,
        model: GPT,
        tokenizer: Tokenizer,
        tokens: Sequence[int],
        tag: str,
        floor: Floor | None = None,
    ) -> None:
        self.writer, self.model, self.tag = writer, model, tag
        self.tokenizer, self.floor = tokenizer, floor
        self.tokens = torch.tensor([tokens])
        self.likely = [
            nlargest(MAX_SAID, known, key=lambda id: known[id])
            for known in (floor.next_tokens if floor else [])
        ]
        self.spelled = [tokenizer.decode_bytes([token]) for token in tokens]
        self.labels = [token_label(token) for token in self.spelled[:MAX_IMAGE_TOKENS]]

    def log(
        self,
        step: int,
        heads: Heads | None = None,
        where: str = THIS_TEXT,
        wiring: Float[Tensor, "3 layer head layer writer"] | None = None,
    ) -> list[Maps]:
        """Log the current maps, and return them.

        heads: what heads do, to show instead of what they do on this text. where: the text on which
            it, and the wiring, were measured.
        wiring: to show instead of that in this text.
        """
        maps, hidden = read_maps(self.model, self.tokens)
        given = Heads({}, {}, []) if heads is None else heads
        measured = dict.fromkeys(given.scores, where)
        if wiring is None:  # this run has no text in which heads copy
            wiring = wiring_matrices(self.model, self.tokens[0])
        elif given.scores:
            measured["wiring"] = where
        add_attention(
            self.writer,
            self.tag,
            maps,
            self.spelled,
            step,
            given.scores,
            measured=measured,
            wiring=wiring,
            counts=given.counts,
            names=given.names or None,
            guesses=self.guesses(hidden),
        )
        return maps

    def guesses(self, hidden: Float[Tensor, "1 token d_model"]) -> Guesses | None:
        """What the model says of every token, beside what a perfect reader says; None if nothing is
        known but what begins a document, which is certain."""
        floor, decode = self.floor, self.tokenizer.decode_bytes
        if floor is None or (floor.unknown and not (floor.nats[1:] > 0).any()):
            return None
        with torch.no_grad(), eval_mode(self.model):
            logs = self.model.logits(hidden[0]).cpu().double().log_softmax(-1)
        nats = -logs[:-1].gather(1, self.tokens[0, 1:, None])[:, 0]
        bits = torch.cat([torch.tensor([math.nan]), nats / math.log(2)])
        best = logs.topk(min(MAX_SAID, logs.shape[1])).indices.tolist()
        rows = []
        for place, (chances, ids) in enumerate(zip(logs.exp().numpy(), best, strict=True)):
            known, likely = floor.next_tokens[place], self.likely[place]
            said = [
                (id, float(chances[id]), known.get(id, 0.0) if known else math.nan)
                for id in dict.fromkeys((*ids, *likely))
            ]
            said.sort(key=lambda row: -row[1])
            worth = [row for row in said if row[1] >= MIN_SAID or row[2] >= MIN_SAID]
            rows.append([(decode([id]), p, q) for id, p, q in worth or said[:1]])
        return Guesses(bits.tolist(), (floor.nats / math.log(2)).tolist(), rows)

    def draw(self, maps: Sequence[Maps], step: int) -> None:
        """Log the images of the first tokens under `maps/layer <n>`."""
        n = len(self.labels)
        for layer, (weights,) in enumerate(maps):
            image = draw_heads(self.labels, weights[:, :n, :n].numpy())
            self.writer.add_image(f"maps/layer {layer}", image, step, dataformats="HWC")
