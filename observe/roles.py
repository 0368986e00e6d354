"""What was learned when: the loss by what the next token is.

Of tales, whose grammar gives the floor of every token, it is the loss above the floor by role, in
bits per tale: the roles add up to the whole distance from the floor. Of other corpora, and with a
tokenizer for which these floors are not known, it is the loss in bits per token by the position in
the context.

Promises: the same texts at every evaluation, and the model is as it was before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64

from common.errors import pluralize
from data.batches import UNSCORED, EvalBatches
from data.roles import ROLES, tale_roles
from model import GPT, eval_mode
from observe.context import RunContext

# How many tales, or as many windows of another corpus: fewer of a larger model, so that one look
# takes about as long as this many products of a weight with a token.
MIN_TEXTS, MAX_TEXTS, PRODUCTS = 4, 16, 10**9
ROWS = 8  # that are read together: the logits of a large vocabulary take much memory
POSITIONS = {
    "0 to 15": (0, 16),
    "16 to 63": (16, 64),
    "64 to 255": (64, 256),
    "256 on": (256, 10**9),
}


class Outputs:
    """The sample and the losses of the model of a run.

    Each is computed when the first observer asks for it, and kept until a later step.
    """

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self._samples: dict[int, str] = {}
        self._bits: dict[int, Float[np.ndarray, "text token"]] = {}

    def sample(self, step: int) -> str:
        """The text of the model, which has taken `step` steps."""
        if step not in self._samples:
            self._samples = {step: self.context.write_sample()}
        return self._samples[step]

    def losses(self, step: int) -> dict[str, float]:
        """The losses of the model, which has taken `step` steps, by what the next token is: by the
        tags of `observe.roles`."""
        return self.scored_texts.by_group(self.target_bits(step))

    def target_bits(self, step: int) -> Float[np.ndarray, "text token"]:
        """The losses of all targets of `scored_texts`, in bits."""
        if step not in self._bits:
            self._bits = {step: target_bits(self.context.model, self.scored_texts)}
        return self._bits[step]

    @cached_property
    def scored_texts(self) -> ScoredTexts:
        return scored_texts(self.context)


class ScoredTexts(NamedTuple):
    """Texts, and which of their targets are counted together, by the name of the scalar.

    floor: of each target in bits, if it is known (see `TaleRoles`): then, each text is a tale.
    """

    inputs: Int64[np.ndarray, "text token"]
    targets: Int64[np.ndarray, "text token"]
    groups: Mapping[str, Bool[np.ndarray, "text token"]]
    floor: Float[np.ndarray, "text token"] | None = None

    @property
    def unit(self) -> str:
        """The unit of what `by_group` returns."""
        if self.floor is None:
            return "bits per token"
        return f"bits per tale above the floor (mean of {pluralize(len(self.inputs), 'tale')})"

    def by_group(self, bits: Float[np.ndarray, "text token"]) -> dict[str, float]:
        """The values to log, by tag, from the loss of every target in bits. Groups without targets
        have none."""
        groups = {tag: at for tag, at in self.groups.items() if at.any()}
        if self.floor is not None:
            above = bits - self.floor
            return {tag: float(above[at].sum()) / len(self.inputs) for tag, at in groups.items()}
        return {tag: float(bits[at].mean()) for tag, at in groups.items()}


def scored_texts(context: RunContext) -> ScoredTexts:
    """The texts of a run."""
    model, length = context.model, context.model.config.context_length
    count = min(MAX_TEXTS, max(MIN_TEXTS, PRODUCTS // (model.n_parameters * length)))
    tales = tale_roles(context.corpus, context.dataset.tokenizer, count, length)
    if tales is None:
        return _other_texts(context, count)
    groups = {f"roles/{name}": tales.roles == index for index, name in enumerate(ROLES)}
    return ScoredTexts(tales.inputs, tales.targets, groups, tales.floor)


def target_bits(model: GPT, texts: ScoredTexts) -> Float[np.ndarray, "text token"]:
    """The loss of every target in bits, 0 where it is not scored, without dropout."""
    device = next(model.parameters()).device
    parts = (torch.from_numpy(tokens).split(ROWS) for tokens in (texts.inputs, texts.targets))
    found = []
    with torch.no_grad(), eval_mode(model):
        for x, y in zip(*parts, strict=True):
            logits = model.logits(model.hidden(x.to(device))).flatten(0, 1).float()
            nats = F.cross_entropy(logits, y.to(device).flatten(), reduction="none")
            found.append(nats.view(y.shape).cpu().double().numpy() / math.log(2))
    return np.concatenate(found)


def _other_texts(context: RunContext, count: int) -> ScoredTexts:
    """Windows of the validation split."""
    dataset, length = context.dataset, context.model.config.context_length
    windows = EvalBatches(dataset.val, length, count, dataset.val_starts).part(count * length)
    inputs, targets = (tensor.numpy() for tensor in windows.batch(0))
    scored = targets != UNSCORED
    places = np.arange(targets.shape[1])
    groups = {
        f"target position/{name}": scored & (places >= first) & (places < end)
        for name, (first, end) in POSITIONS.items()
    }
    return ScoredTexts(inputs, targets, groups)
