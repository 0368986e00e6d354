"""Tensors in safetensors files, one at a time: no model is ever in memory as a whole.

safetensors' own writer needs all tensors at once, and what it reads stays mapped: two models in
memory. Here the file is opened again for each tensor, and written in one pass.

A tensor is in one file, or its rows are in several, the shards of several ranks. A shard says in
its header at which row each of its tensors begins, as PyTorch's HuggingFaceStorageWriter does, so
that PyTorch's HuggingFaceStorageReader can read the files too.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

# The names in the headers of PyTorch's distributed checkpoints in this format.
PLACEMENT, OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CODES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


class Piece(NamedTuple):
    """The rows of a tensor that one file holds, from row `first` on."""

    first: int
    shape: tuple[int, ...]
    dtype: str
    path: Path


class Tensors(Mapping[str, Tensor]):
    """The tensors of safetensors files by name; each access reads one from the disk.

    Raises ValueError if a file cannot be read, if the files do not hold every row of a tensor
    exactly once, or if what is read is not finite.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._pieces: dict[str, list[Piece]] = {}
        for path in files:
            if not os.path.isfile(path):  # noqa: PTH113 (which raises for a long name)
                raise ValueError(f"{path.name:.80}: is missing, or is not a file; restore it")
            for name, piece in _pieces(path):
                self._pieces.setdefault(name, []).append(piece)
        self.shapes = {name: _shape(name, pieces) for name, pieces in self._pieces.items()}
        self.dtypes = {name: pieces[0].dtype for name, pieces in self._pieces.items()}

    def __getitem__(self, name: str) -> Tensor:
        pieces = self._pieces[name]
        if len(pieces) == 1:
            with _opened(pieces[0].path) as file:
                tensor = file.get_tensor(name)
            check_values(name, tensor)
            return tensor
        with _opened(pieces[0].path) as file:
            dtype = file.get_slice(name)[:0].dtype
        tensor = torch.empty(self.shapes[name], dtype=dtype)
        self.read(name, slice(0, len(tensor)), tensor)
        return tensor

    def read(self, name: str, rows: slice, into: Tensor) -> None:
        """Copy rows of a tensor from the disk; none of the others is read."""
        if not self.shapes[name]:
            into.copy_(self[name])
            return
        for piece in self._pieces[name]:
            start, stop = max(rows.start, piece.first), min(rows.stop, piece.first + piece.shape[0])
            if start < stop:
                # Opened anew for each tensor: pages of a mapped file that were read count as
                # memory.
                with _opened(piece.path) as file:
                    values = file.get_slice(name)[start - piece.first : stop - piece.first]
                    check_values(name, values)
                    into[start - rows.start : stop - rows.start].copy_(values)
                    del values  # before the next one is read

    def __contains__(self, name: object) -> bool:
        return name in self._pieces  # Mapping's own reads the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)


def _pieces(path: Path) -> Iterator[tuple[str, Piece]]:
    """What a file holds, from its header."""
    with _opened(path) as file:
        placement = (file.metadata() or {}).get(PLACEMENT)
        try:
            places = None if placement is None else json.loads(placement)
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                view = file.get_slice(name)
                shape = tuple(view.get_shape())
                first, *columns = (0,) if places is None else (*places[name][OFFSETS], 0)
                if type(first) is not int or any(columns):
                    raise ValueError(name)
                yield name, Piece(first, shape, view.get_dtype(), path)
        except (ValueError, LookupError, TypeError, RecursionError):
            raise ValueError(f"{path.name}: its tensors are not rows of others") from None


def _shape(name: str, pieces: list[Piece]) -> tuple[int, ...]:
    """The shape of the tensor that `pieces` are. Sorts them."""
    pieces.sort()
    rows, (_, shape, dtype, _) = 0, pieces[0]
    if not shape and len(pieces) == 1:
        return ()
    for piece in pieces:
        if not shape or piece.shape[1:] != shape[1:] or piece.dtype != dtype or piece.first != rows:
            raise ValueError(
                f"{piece.path.name}: {name:.80} is also in another file, or not all of its rows "
                "are in the files; restore them"
            )
        rows += piece.shape[0]
    return (rows, *shape[1:])


class Entry(NamedTuple):
    """A tensor to be written. `read` is called when it is its turn."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # one of DTYPES
    read: Callable[[], Tensor]

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> Entry:
        """The entry of a tensor of one of DTYPES, on any device."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        return cls(name, tuple(tensor.shape), dtype, lambda: tensor.detach().cpu())

    @property
    def n_elements(self) -> int:
        return torch.Size(self.shape).numel()

    @property
    def n_bytes(self) -> int:
        return self.n_elements * DTYPES[self.dtype].itemsize


def write_tensors(
    path: Path, entries: Iterable[Entry], offsets: Mapping[str, Sequence[int]] | None = None
) -> None:
    """Write a safetensors file, one tensor after the other.

    The format is the length of the header in 8 bytes, the header in JSON, and the data; see
    https://huggingface.co/docs/safetensors. `offsets` is for a shard: where in the full tensor each
    of its tensors begins, along each axis. Raises ValueError if a value does not fit its dtype.
    """
    entries, codes = list(entries), {dtype: code for code, dtype in CODES.items()}
    about = {"format": "pt"}
    if offsets is not None:
        places = {name: {OFFSETS: list(offset)} for name, offset in offsets.items()}
        about |= {PLACEMENT: json.dumps(places), "DCP_VERSION": "1.0"}
    header: dict[str, object] = {"__metadata__": about}
    end = 0
    for each in entries:
        begin, end = end, end + each.n_bytes
        header[each.name] = {
            "dtype": codes[each.dtype],
            "shape": each.shape,
            "data_offsets": (begin, end),
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data are aligned
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for each in entries:
            tensor = as_dtype(each.name, each.read(), each.dtype)
            assert tensor.shape == each.shape, each.name
            # As integers of the same size, since NumPy has no bfloat16.
            integers = tensor.view({2: torch.int16, 4: torch.int32}[tensor.element_size()])
            file.write(np.ascontiguousarray(integers.numpy()).data)


def as_dtype(name: str, tensor: Tensor, dtype: str) -> Tensor:
    """The tensor, whose values are finite, in one of DTYPES. Raises ValueError if one is too large
    for it."""
    converted = tensor.to(DTYPES[dtype])
    if converted.dtype != tensor.dtype and not converted.isfinite().all():
        raise ValueError(
            f"dtype: {name} has values beyond the range of {dtype}; give float32 or bfloat16"
        )
    return converted


def check_values(name: str, values: Tensor) -> None:
    """Raises ValueError unless all are finite floating-point numbers."""
    is_float = values.is_floating_point()
    # Not `isfinite`, which takes more memory than the values.
    if not is_float or (values.numel() and not sum(map(math.isfinite, values.aminmax())) == 2):
        raise ValueError(f"{name} has values that are not finite floating-point numbers")


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(path, "pt")
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path.name}: cannot be read ({reason}); restore it") from None
