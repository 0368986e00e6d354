"""Tensors in safetensors files, one at a time: no model is ever in memory as a whole.

safetensors' own writer needs all tensors at once, and what it reads stays mapped: two models in
memory. Here the file is opened again for each tensor, and written in one pass.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from training.weights import check_values

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CODES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


class Tensors(Mapping[str, Tensor]):
    """The tensors of safetensors files by name; each access reads one from the disk.

    Raises ValueError if a file cannot be read, if a name occurs twice, or if what is read is not
    finite.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        self._files: dict[str, Path] = {}
        for path in files:
            if not os.path.isfile(path):  # noqa: PTH113 (which raises for a long name)
                raise ValueError(f"{path.name:.80}: is missing, or is not a file; restore it")
            with _opened(path) as file:
                for name in file.keys():  # noqa: SIM118 (not a mapping)
                    if name in self._files:
                        raise ValueError(f"{path.name}: {name:.80} is also in another file")
                    self._files[name] = path
                    self.shapes[name] = tuple(file.get_slice(name).get_shape())
                    self.dtypes[name] = file.get_slice(name).get_dtype()

    def __getitem__(self, name: str) -> Tensor:
        with _opened(self._files[name]) as file:
            tensor = file.get_tensor(name)
        check_values(name, tensor)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class Entry(NamedTuple):
    """A tensor to be written. `read` is called when it is its turn."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # one of DTYPES
    read: Callable[[], Tensor]

    @property
    def n_elements(self) -> int:
        return torch.Size(self.shape).numel()

    @property
    def n_bytes(self) -> int:
        return self.n_elements * DTYPES[self.dtype].itemsize


def write_tensors(path: Path, entries: Iterable[Entry]) -> None:
    """Write a safetensors file, one tensor after the other.

    The format is the length of the header in 8 bytes, the header in JSON, and the data; see
    https://huggingface.co/docs/safetensors. Raises ValueError if a value does not fit its dtype.
    """
    entries, codes = list(entries), {dtype: code for code, dtype in CODES.items()}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
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


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(path, "pt")
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path.name}: cannot be read ({reason}); restore it") from None
