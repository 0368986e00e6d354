"""Batches of token windows, as tensors.

Promises: the training batch of a step is a pure function of (seed, step), so a resumed run needs no
sampler state; evaluation scores every target exactly once. Knows nothing of text, devices or ranks.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int, Int64, UInt
from torch import Tensor


class Batches:
    """Training windows of `context_length` tokens, each used once per epoch, in a new random order.

    In each epoch, consecutive windows start at a random first token, so that over many epochs every
    token occurs at every position; up to two windows of tokens at the ends are left out. The order
    takes 8 bytes a window.

    documents: the first token of every document. A window moves back to the newest document that
        begins at most half a window before it, and starts with the token before that document, as
        in evaluation (`EvalBatches`). Half of a document without its beginning teaches little about
        what refers to the beginning. None: windows stay where they are.
    n_ending: how many tokens end a document; all of them lie in that half of a window.
    """

    def __init__(
        self,
        tokens: UInt[np.ndarray, " token"],
        batch_size: int,
        context_length: int,
        seed: int,
        documents: Int64[np.ndarray, " document"] | None = None,
        n_ending: int = 1,
    ) -> None:
        """Raises ValueError if `tokens` is shorter than one window and its targets."""
        if len(tokens) <= context_length:
            raise ValueError(f"{len(tokens)} tokens are too few for a window of {context_length}")
        self._tokens = tokens
        self._batch_size = batch_size
        self._seed = seed
        self._documents = documents
        self._reach = context_length // 2 + 1 - n_ending
        self._span = np.arange(context_length + 1)
        # One window fewer than would fit, to leave room for the random first token.
        self._n_windows = max(1, (len(tokens) - 1) // context_length - 1)
        self._starts = lru_cache(maxsize=1)(self._draw_starts)

    def __call__(self, step: int) -> tuple[Int[Tensor, "batch query"], Int[Tensor, "batch query"]]:
        """Inputs and their targets (the inputs shifted by one), int64, at `step` = 0, 1, 2, ..."""
        first = step * self._batch_size
        epochs, places = np.divmod(np.arange(first, first + self._batch_size), self._n_windows)
        starts = np.empty_like(places)
        for epoch in np.unique(epochs):
            mine = epochs == epoch
            starts[mine] = self._starts(int(epoch))[places[mine]]
        if self._documents is not None:
            newest = np.searchsorted(self._documents, starts + 1, side="right") - 1
            before = self._documents[newest] - 1  # -1 at the first document of all
            starts = np.where((before >= 0) & (starts - before <= self._reach), before, starts)
        windows = self._tokens[starts[:, None] + self._span]
        return _tensor(windows[:, :-1]), _tensor(windows[:, 1:])

    def _draw_starts(self, epoch: int) -> Int64[np.ndarray, " windows"]:
        """The first token of every window of `epoch`, in the order of training."""
        context_length = len(self._span) - 1
        rng = np.random.default_rng([self._seed, epoch])
        spare = len(self._tokens) - 1 - self._n_windows * context_length
        offset = rng.integers(spare + 1)
        starts = rng.permutation(self._n_windows)
        starts *= context_length
        starts += offset
        return starts


UNSCORED = -100  # as a target: PyTorch's cross entropy ignores it


class EvalBatches:
    """Evaluation batches that score every target once.

    starts: the first token of every document. A document is read from its beginning, in a window
        that begins with the token before it (that of the first document: the last token of all). By
        default, `tokens` are one document, whose first token is not scored.
    bits: the information of each document, if it is known.
    stride: a document longer than a window continues in windows that begin `stride` tokens apart,
        and score only what no earlier one has. By default, windows of documents overlap by half,
        and those of a single stretch of tokens not at all.

    `bits` is the information of the documents that are scored, or None if it is unknown.
    Iterating yields inputs and targets, int64. Windows of similar length are in one batch, in which
    shorter ones are padded; padding and targets that are not scored are `UNSCORED`.
    """

    def __init__(
        self,
        tokens: UInt[np.ndarray, " token"],
        context_length: int,
        batch_size: int,
        starts: Int64[np.ndarray, " document"] | None = None,
        stride: int | None = None,
        bits: Float64[np.ndarray, " _document"] | None = None,
    ) -> None:
        self._tokens, self._batch_size = tokens, batch_size
        stride = stride or (context_length if starts is None else -(-context_length // 2))
        first = np.array([1]) if starts is None else starts
        spans, document = _windows(first, len(tokens), context_length, stride)
        begin, _, end = spans.T
        order = np.argsort(begin - end, kind="stable")  # the longest windows come first
        self._spans = spans[order]
        # What `part` chooses: documents, or if there are none, windows.
        self._units = np.arange(len(order)) if starts is None else document[order]
        self.bits = None if bits is None else math.fsum(bits)
        is_of_each = bits is not None and starts is not None and len(bits) == len(starts)
        self._bits = bits if is_of_each else None

    def __len__(self) -> int:
        """The number of batches."""
        return -(-len(self._spans) // self._batch_size)

    def __iter__(self) -> Iterator[tuple[Int[Tensor, "batch query"], Int[Tensor, "batch query"]]]:
        return map(self.batch, range(len(self)))

    def batch(self, index: int) -> tuple[Int[Tensor, "batch query"], Int[Tensor, "batch query"]]:
        """One of the batches that iterating yields; windows become shorter from first to last."""
        at = index * self._batch_size
        begin, scored, end = self._spans[at : at + self._batch_size].T[:, :, None]
        # Place -1 is the last token. What is read beyond the end is never scored.
        places = begin + np.arange(-1, (end - begin).max())
        read = _tensor(self._tokens[np.minimum(places, end - 1)])
        counts = torch.from_numpy((scored <= places) & (places < end))
        return read[:, :-1], read[:, 1:].where(counts[:, 1:], UNSCORED)

    @property
    def begins(self) -> Int64[np.ndarray, " window"]:
        """Of each window, in the order of iteration, which of the tokens its first target is."""
        return self._spans[:, 0]

    @property
    def sizes(self) -> Int64[np.ndarray, " window"]:
        """Of each window, how many of its tokens are scored."""
        return self._spans[:, 2] - self._spans[:, 1]

    @property
    def n_targets(self) -> int:
        """The number of tokens that are scored."""
        return int(self.sizes.sum())

    def only(self, is_chosen: Bool[np.ndarray, " window"]) -> EvalBatches:
        """Some of the windows, whose information is unknown."""
        chosen = copy.copy(self)
        chosen._spans, chosen._units = self._spans[is_chosen], self._units[is_chosen]
        chosen.bits = chosen._bits = None
        return chosen

    def part(self, n_targets: int | None) -> EvalBatches:
        """Whole documents, or windows of a single stretch of tokens, that score about `n_targets`
        tokens (None: all), at least one. They are evenly spread, the longest ones first."""
        if n_targets is None or n_targets >= self.n_targets:
            return self
        units, first = np.unique(self._units, return_index=True)
        units = units[np.argsort(first)]  # in the order of their first windows
        count = max(1, len(units) * n_targets // self.n_targets)
        units = units[(2 * np.arange(count) + 1) * len(units) // (2 * count)]
        chosen = self.only(np.isin(self._units, units))
        chosen.bits = None if self._bits is None else math.fsum(self._bits[units])
        return chosen


def _windows(
    first: Int64[np.ndarray, " document"], n_tokens: int, context_length: int, stride: int
) -> tuple[Int64[np.ndarray, "window 3"], Int64[np.ndarray, " window"]]:
    """The windows over documents whose first targets are at `first`, and the document of each. The
    targets of a window are the tokens from `begin` to `end`; those from `scored` on count."""
    last = np.append(first[1:], max(n_tokens, first[-1]))  # where the next document begins
    count = (last > first) + -(-np.maximum(last - first - context_length, 0) // stride)
    document = np.repeat(np.arange(len(first)), count)
    place = np.arange(len(document)) - np.searchsorted(document, document)  # in its document
    begin = first[document] + place * stride
    scored = begin + np.where(place > 0, context_length - stride, 0)  # by no window before
    end = np.minimum(begin + context_length, last[document])
    return np.stack([begin, scored, end], axis=1), document


def _tensor(tokens: UInt[np.ndarray, "batch query"]) -> Int64[Tensor, "batch query"]:
    return torch.from_numpy(tokens.astype(np.int64, order="C"))
