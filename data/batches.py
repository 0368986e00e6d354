"""Batches of token windows, as tensors.

Promises: the training batch of a step is a pure function of (seed, step), so a resumed run needs no
sampler state; evaluation windows contain every target of a split exactly once. Knows nothing of
text, devices or ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt
from torch import Tensor


class Batches:
    """Training windows of `context_length` tokens, each used once per epoch, in a new random order.

    In each epoch, consecutive windows start at a random first token, so that over many epochs every
    token occurs at every position; up to two windows of tokens at the ends are left out.
    """

    def __init__(
        self,
        tokens: UInt[np.ndarray, " tokens"],
        batch_size: int,
        context_length: int,
        seed: int,
    ) -> None:
        """Raises ValueError if `tokens` is shorter than one window and its targets."""
        if len(tokens) <= context_length:
            raise ValueError(f"{len(tokens)} tokens are too few for a window of {context_length}")
        self._tokens = tokens
        self._batch_size = batch_size
        self._seed = seed
        self._span = np.arange(context_length + 1)
        # One window fewer than would fit, to leave room for the random first token.
        self._n_windows = max(1, (len(tokens) - 1) // context_length - 1)
        self._epoch = lru_cache(maxsize=1)(self._draw_epoch)

    def __call__(self, step: int) -> tuple[Int[Tensor, "batch query"], Int[Tensor, "batch query"]]:
        """Inputs and their targets (the inputs shifted by one), int64, at `step` = 0, 1, 2, ..."""
        first = step * self._batch_size
        epochs, places = np.divmod(np.arange(first, first + self._batch_size), self._n_windows)
        starts = np.empty_like(places)
        for epoch in np.unique(epochs):
            mine = epochs == epoch
            starts[mine] = self._epoch(int(epoch))[places[mine]]
        windows = self._tokens[starts[:, None] + self._span]
        return _tensor(windows[:, :-1]), _tensor(windows[:, 1:])

    def _draw_epoch(self, epoch: int) -> Int64[np.ndarray, " windows"]:
        """The first token of every window of `epoch`, in the order of training."""
        context_length = len(self._span) - 1
        rng = np.random.default_rng([self._seed, epoch])
        spare = len(self._tokens) - 1 - self._n_windows * context_length
        return rng.integers(spare + 1) + rng.permutation(self._n_windows) * context_length


def windows(
    tokens: UInt[np.ndarray, " tokens"], context_length: int, batch_size: int
) -> Iterator[tuple[Int[Tensor, "batch query"], Int[Tensor, "batch query"]]]:
    """Inputs and targets, int64, that contain every target of `tokens` exactly once, in order.

    Windows do not overlap; the rest after the last whole window comes as a batch of one shorter
    window.
    """
    n_targets = max(len(tokens) - 1, 0)
    whole = n_targets - n_targets % context_length
    for start in range(0, whole, batch_size * context_length):
        stop = min(start + batch_size * context_length, whole)
        yield (
            _tensor(tokens[start:stop].reshape(-1, context_length)),
            _tensor(tokens[start + 1 : stop + 1].reshape(-1, context_length)),
        )
    if whole < n_targets:
        yield _tensor(tokens[None, whole:-1]), _tensor(tokens[None, whole + 1 :])


def _tensor(tokens: UInt[np.ndarray, "batch query"]) -> Int64[Tensor, "batch query"]:
    return torch.from_numpy(tokens.astype(np.int64, order="C"))
