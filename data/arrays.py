"""One array of tokens that lies in stretches of many files.

Promises: reading maps the files, and copies only what is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt

_OPEN = 4096  # files that are mapped at once


class TokenArray:
    """The tokens of stretches of files, one after the other, as one array of one dimension.

    files: of tokens of one dtype. spans: one row for each stretch: the number of its file, its
    first token, and the one after its last.

    Slices and arrays of indices, which count from the end if they are negative, give arrays in
    memory. Raises IndexError for an index that is out of range.
    """

    def __init__(
        self, files: Sequence[Path], spans: Int64[np.ndarray, "span 3"], dtype: str
    ) -> None:
        self.files, self.dtype = files, np.dtype(dtype)
        self._spans = spans = spans[spans[:, 2] > spans[:, 1]]
        self._ends = np.cumsum(spans[:, 2] - spans[:, 1])
        self._open = lru_cache(_OPEN)(self._map)
        for file in np.unique(spans[:, 0])[:_OPEN]:  # which may be deleted from now on
            self._open(int(file))

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def _map(self, file: int) -> np.ndarray:
        return np.memmap(self.files[file], self.dtype, "r")

    def __getitem__(self, index: slice | Int64[np.ndarray, "*shape"]) -> UInt[np.ndarray, "*shape"]:
        if isinstance(index, slice):
            return self._slice(*index.indices(len(self)))
        places = np.where(index < 0, index + len(self), index).ravel()
        if len(places) and not (places.min() >= 0 and places.max() < len(self)):
            raise IndexError(f"an index is not below {len(self)}")
        if not len(places):
            return np.empty(index.shape, self.dtype)
        of = np.searchsorted(self._ends, places, side="right")  # the span of each place
        found = np.empty(len(places), self.dtype)
        order = np.argsort(of, kind="stable")
        numbers, begins = np.unique(of[order], return_index=True)
        for number, part in zip(numbers, np.split(order, begins[1:]), strict=True):
            file, _, stop = self._spans[number]
            offset = stop - self._ends[number]
            found[part] = self._open(int(file))[places[part] + offset]
        return found.reshape(index.shape)

    def _slice(self, start: int, stop: int, step: int) -> UInt[np.ndarray, " _"]:
        if step != 1 or start >= stop:
            return self[np.arange(start, stop, step)]
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right")
        found = []
        for (file, begin, end), total in zip(
            self._spans[first : last + 1], self._ends[first : last + 1], strict=True
        ):
            offset = end - total
            part = slice(max(start + offset, begin), min(stop + offset, end))
            found.append(self._open(int(file))[part])
        return np.concatenate(found)


Tokens = UInt[np.ndarray, " _"] | TokenArray
