"""What was learned when: the loss by what the next token is.

Of tales, whose grammar gives the floor of every token, it is the loss above the floor by role, in
bits per tale: the roles add up to the whole distance from the floor. Of other corpora, and with a
tokenizer for which these floors are not known, it is the loss in bits per token by how often the
word came before in the context, by the position in the context and by the frequency of the token.

Promises: the same texts at every evaluation, and the model is as it was before.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from common.errors import counted
from data.batches import UNSCORED, EvalBatches
from data.roles import ROLES, tale_roles
from model import GPT, evaluating
from observe.context import RunContext

# How many tales, or as many windows of another corpus: fewer of a larger model, so that one look
# takes about as long as this many products of a weight with a token.
FEWEST, MOST, PRODUCTS = 4, 16, 10**9
ROWS = 8  # that are read together: the logits of a large vocabulary take much memory
N_COUNTED = 10**6  # tokens of the training split, from which frequencies are known
WORD = re.compile(rb"[\w\x80-\xff]+")
SEEN = ("new", "seen once", "seen more often")
POSITIONS = {
    "0 to 15": (0, 16),
    "16 to 63": (16, 64),
    "64 to 255": (64, 256),
    "256 on": (256, 10**9),
}
FREQUENCIES = {"1% or more": (0.01, 2), "0.1% to 1%": (0.001, 0.01), "under 0.1%": (0, 0.001)}


class ScoredTexts(NamedTuple):
    """Texts, and which of their targets are counted together, by the name of the scalar.

    floor: of each target in bits, if it is known (see `TaleRoles`); n_tales: then, of how many
        tales.
    """

    inputs: Int64[np.ndarray, "text token"]
    targets: Int64[np.ndarray, "text token"]
    groups: Mapping[str, Bool[np.ndarray, "text token"]]
    floor: Float[np.ndarray, "text token"] | None = None
    n_tales: int = 0

    @property
    def unit(self) -> str:
        """The unit of what `by_group` returns."""
        if self.floor is None:
            return "bits per token"
        return f"bits per tale above the floor (mean of {counted(self.n_tales, 'tale')})"

    def by_group(self, bits: Float[np.ndarray, "text token"]) -> dict[str, float]:
        """The values to log, by tag, from the loss of every target in bits. Groups without targets
        have none."""
        groups = {tag: at for tag, at in self.groups.items() if at.any()}
        if self.floor is not None:
            above = bits - self.floor
            return {tag: float(above[at].sum()) / self.n_tales for tag, at in groups.items()}
        return {tag: float(bits[at].mean()) for tag, at in groups.items()}


def scored_texts(context: RunContext) -> ScoredTexts:
    """The texts of a run."""
    model, length = context.model, context.model.config.context_length
    count = min(MOST, max(FEWEST, PRODUCTS // (model.n_parameters * length)))
    tales = tale_roles(context.corpus, context.dataset.tokenizer, count, length)
    if tales is None:
        return _other_texts(context, count)
    groups = {f"excess/{name}": tales.roles == index for index, name in enumerate(ROLES)}
    return ScoredTexts(tales.inputs, tales.targets, groups, tales.floor, len(tales.inputs))


def target_bits(model: GPT, texts: ScoredTexts) -> Float[np.ndarray, "text token"]:
    """The loss of every target in bits, 0 where it is not scored, without dropout."""
    device = next(model.parameters()).device
    found = []
    with torch.no_grad(), evaluating(model):
        for x, y in zip(*map(_parts, (texts.inputs, texts.targets)), strict=True):
            logits = model.logits(model.hidden(x.to(device))).flatten(0, 1).float()
            nats = F.cross_entropy(logits, y.to(device).flatten(), reduction="none")
            found.append(nats.view(y.shape).double().cpu().numpy() / math.log(2))
    return np.concatenate(found)


def _parts(tokens: Int64[np.ndarray, "text token"]) -> Sequence[Tensor]:
    return torch.from_numpy(tokens).split(ROWS)


def _other_texts(context: RunContext, count: int) -> ScoredTexts:
    """Windows of the validation split."""
    dataset, length = context.dataset, context.model.config.context_length
    starts = context.document_starts(dataset.val)
    windows = EvalBatches(dataset.val, length, count, starts).part(count * length)
    inputs, targets = (tensor.numpy() for tensor in windows.batch(0))
    scored = targets != UNSCORED
    places = np.broadcast_to(np.arange(targets.shape[1]), targets.shape)
    trained = dataset.train[:N_COUNTED]
    shares = np.bincount(trained, minlength=dataset.tokenizer.vocab_size) / len(trained)
    frequency = shares[targets.clip(0)]
    spelled = [dataset.tokenizer.decode_bytes([id]) for id in range(dataset.tokenizer.vocab_size)]
    seen = np.full(targets.shape, -1)
    for row, ids in enumerate(targets):
        end = int(np.flatnonzero(ids != UNSCORED)[-1]) + 1  # what follows is padding
        text = [*inputs[row, :end], ids[end - 1]]
        seen[row, :end] = times_seen([spelled[id] for id in text])
    groups = {f"target word/{name}": scored & (seen == n) for n, name in enumerate(SEEN)}
    for tag, values, bands in (
        ("target position", places, POSITIONS),
        ("target frequency", frequency, FREQUENCIES),
    ):
        for name, (least, below) in bands.items():
            groups[f"{tag}/{name}"] = scored & (values >= least) & (values < below)
    return ScoredTexts(inputs, targets, groups)


def times_seen(spelled: Sequence[bytes]) -> Int64[np.ndarray, " other"]:
    """For every token but the first: how often the text before it has the word that it begins, at
    most 2; -1 if it begins none, or the last word of the text, of which there may be more."""
    found = np.full(len(spelled), -1)
    ends = np.cumsum([len(spelling) for spelling in spelled])
    counts: Counter[bytes] = Counter()
    for word in WORD.finditer(b"".join(spelled)):
        if word.end() == ends[-1]:
            break
        found[np.searchsorted(ends, word.start(), side="right")] = min(2, counts[word[0]])
        counts[word[0]] += 1
    return found[1:]
