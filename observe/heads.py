"""What the heads of a model do, measured over whole documents of the validation split.

Promises: the same documents at every step, in two halves; how many depends on the run alone. The
names are those of the rule of `tensorboard_attention.naming`, whatever the number of documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from common.errors import pluralize
from data.batches import UNSCORED, EvalBatches
from data.encoding import Dataset
from data.tokenizer import Tokenizer
from model import GPT, eval_mode, record_attention, wiring_matrices
from tensorboard_attention.naming import Measure
from tensorboard_attention.patterns import CONTINUES, PATTERNS, Text
from tensorboard_attention.scores import Heads, heads_of
from tensorboard_attention.tokens import token_texts

N_TOKENS = 2_000  # at every logged step: enough for names that hold, and little time
# Windows that are read together, and how many numbers their maps may have: of a larger model,
# fewer windows are read together.
ROWS, MAX_KEPT = 8, 2**29


class Window(NamedTuple):
    """A document, or a part of one that fits the context, without padding. begin: which token of
    the split the first target is. half: 0 or 1."""

    ids: Int64[np.ndarray, " query"]
    targets: Int64[np.ndarray, " query"]
    begin: int
    half: int


class Documents:
    """The first documents of the validation split with about so many tokens, or windows of a text
    that is not divided, evenly spread. Every second document, or window, is of the second half.

    Raises ValueError for a model whose maps of one window are too large.
    """

    def __init__(self, model: GPT, dataset: Dataset, n_tokens: int) -> None:
        config, starts, tokens = model.config, dataset.val_starts, dataset.val
        length, n_heads = config.context_length, config.n_layers * config.n_heads
        rows = min(ROWS, MAX_KEPT // (n_heads * length * (length + config.d_model)))
        if rows == 0:
            raise ValueError("the maps of a context of this model are too large to be measured")
        if starts is None:
            # Several windows, for the halves.
            length = max(1, min(length, n_tokens // 8, (len(tokens) - 1) // 2))
        else:
            last = max(2, int(np.searchsorted(starts, starts[0] + n_tokens)))
            end = int(starts[last]) if last < len(starts) else len(tokens)
            tokens, starts = tokens[:end], starts[:last]
        self.tokens, self.starts = tokens, starts
        windows = EvalBatches(tokens, length, rows, starts)
        self.batches = windows.part(n_tokens) if starts is None else windows
        self.n_tokens = self.batches.n_targets
        begins = self.batches.begins
        parts = begins if starts is None else np.searchsorted(starts, begins, "right")
        halves = np.unique(parts, return_inverse=True)[1] % 2
        where = zip(begins.tolist(), halves.tolist(), strict=True)
        self.windows = [
            Window(ids[: _length(wanted)].numpy(), wanted[: _length(wanted)].numpy(), *next(where))
            for inputs, targets in self.batches
            for ids, wanted in zip(inputs, targets, strict=True)
        ]

    @property
    def where(self) -> str:
        """What is measured, in words."""
        if self.starts is None:
            return f"{self.n_tokens:,} tokens of validation text"
        return f"{pluralize(len(self.starts), 'validation document')} ({self.n_tokens:,} tokens)"


def _length(targets: Int64[Tensor, " query"]) -> int:
    return int((targets != UNSCORED).nonzero().max()) + 1


def maps_of(
    model: GPT, tokens: Int[Tensor, "batch token"]
) -> list[Float[Tensor, "batch head query key"]]:
    """The attention maps of every layer on the CPU, in float32, without dropout."""
    with torch.no_grad(), eval_mode(model), record_attention(model) as maps:
        model.hidden(tokens.to(next(model.parameters()).device))
    return [weights.float().cpu() for weights in maps]


def spell(tokenizer: Tokenizer, vocab_size: int) -> list[str]:
    """What each token spells, and such as <50256> for one that spells nothing."""
    texts = token_texts([tokenizer.decode_bytes([id]) for id in range(vocab_size)], None)
    return [text or f"<{id}>" for id, text in enumerate(texts)]


class HeadNames:
    """The patterns and names of all heads over given documents."""

    def __init__(self, model: GPT, spelled: Sequence[str], documents: Documents) -> None:
        self.model, self.documents = model, documents
        texts = [
            Text(
                window.ids,
                [spelled[id] for id in window.ids],
                window.half,
                following=int(window.targets[-1]),
                counts=window.targets != UNSCORED,
            )
            for window in documents.windows
        ]
        self.measure_maps = Measure(texts)
        # Where most queries continue a repeat: a text in which heads copy, for their wiring.
        place = PATTERNS.index(CONTINUES)
        most = max(range(len(texts)), key=lambda number: texts[number].queries[place])
        self.wired = documents.windows[most].ids
        self.copying = np.zeros(len(self.wired), bool)
        self.copying[texts[most].cells[place] // len(self.wired)] = True

    def measure(self) -> Heads:
        """Of the model as it is."""
        config = self.model.config
        shares = self.measure_maps(self._maps())
        return heads_of(shares, [config.n_heads] * config.n_layers)

    def _maps(self) -> Iterator[Float[np.ndarray, "head query key"]]:
        for inputs, targets in self.documents.batches:
            maps = torch.cat(maps_of(self.model, inputs), 1).numpy()
            for weights, wanted in zip(maps, targets, strict=True):
                yield weights[:, : (n := _length(wanted)), :n]

    def wiring(self) -> Float[Tensor, "3 layer head layer writer"] | None:
        """What heads read where a text repeats itself; None if none does."""
        if not self.copying.any():
            return None
        queries = torch.from_numpy(self.copying)
        return wiring_matrices(self.model, torch.from_numpy(self.wired), queries)
