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
    """The first documents of the validation split with about so many tokens, or of one that has no
    two, windows that are evenly spread. Every second document, or window, is of the second half.

    Long documents are read in parts of about an eighth of `n_tokens`, each of which counts as a
    document; the first parts of all documents come before the second ones.

    length: tokens of a window, at most. rows: windows in a batch, at most.
    """

    def __init__(
        self, dataset: Dataset, length: int, n_tokens: int = N_TOKENS, rows: int = ROWS
    ) -> None:
        starts, tokens, part = dataset.val_documents, dataset.val, max(1, n_tokens // 8)
        if starts is None or len(starts) < 2:
            starts = None
            # Several windows, for the halves.
            length = max(1, min(length, part, (len(tokens) - 1) // 2))
            self.batches = EvalBatches(tokens, length, rows).part(n_tokens)
            order = np.unique(self.batches.begins, return_inverse=True)[1]
        else:
            if len(starts) > n_tokens:  # each has a token
                tokens, starts = tokens[: starts[n_tokens]], starts[:n_tokens]
            windows = EvalBatches(tokens, min(length, 4 * part), rows, starts)
            document = np.searchsorted(starts, windows.begins, "right") - 1
            number = (windows.begins - starts[document]) // part  # of the part, in its document
            order = np.unique(number * len(starts) + document, return_inverse=True)[1]
            n_read = np.cumsum(np.bincount(order, windows.sizes))
            is_read = order <= max(1, int(np.searchsorted(n_read, n_tokens)))
            self.batches, order = windows.only(is_read), order[is_read]
            last = document[is_read].max() + 1
            tokens = tokens[: starts[last]] if last < len(starts) else tokens
            starts = starts[:last]
        self.tokens, self.starts, self.n_tokens = tokens, starts, self.batches.n_targets
        where = zip(self.batches.begins.tolist(), (order % 2).tolist(), strict=True)
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
        documents = pluralize(len(self.starts), "validation document")
        is_whole = self.n_tokens == len(self.tokens) - self.starts[0]
        return f"{'' if is_whole else 'parts of '}{documents} ({self.n_tokens:,} tokens)"


def _length(targets: Int64[Tensor, " query"]) -> int:
    return int((targets != UNSCORED).nonzero().max()) + 1
