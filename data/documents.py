"""Whole documents of the validation split, over which a model is measured."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int64
from torch import Tensor

from common.errors import pluralize
from data.batches import UNSCORED, EvalBatches
from data.encoding import Dataset

N_TOKENS = 2_000  # enough for names that hold, and little time
ROWS = 8  # windows that are read together


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

    length: tokens of a window, at most. rows: windows in a batch, at most.
    """

    def __init__(
        self, dataset: Dataset, length: int, n_tokens: int = N_TOKENS, rows: int = ROWS
    ) -> None:
        starts, tokens = dataset.val_starts, dataset.val
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
