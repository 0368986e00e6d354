"""Tensors whose rows are in several files, written by ranks or by strangers."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch

from errors import UserError
from training.tensors import Entry, Tensors, write_tensors
from training.weights import MODEL, check_finite, file_names, shard_name


def write(path: Path, tensors: dict[str, torch.Tensor], first: int) -> None:
    entries = [Entry.of(name, each) for name, each in tensors.items()]
    offsets = {name: [first, 0][: each.ndim] for name, each in tensors.items()}
    write_tensors(path, entries, offsets)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_rows_are_read_from_any_shards(tmp_path: Path, dtype: torch.dtype) -> None:
    """The last shard has no rows, and the files are not given in order."""
    full = torch.randn(7, 3).to(dtype)
    paths = []
    for rank, rows in enumerate((slice(0, 3), slice(3, 6), slice(6, 7), slice(7, 7))):
        paths.append(tmp_path / shard_name(MODEL, rank, 4))
        extra = {"scalar": torch.tensor(5.0)} if rank == 2 else {}
        write(paths[-1], {"matrix": full[rows], **extra}, rows.start)
    assert file_names(tmp_path, MODEL) == [each.name for each in paths]
    tensors = Tensors(paths[::-1])
    assert tensors.shapes == {"matrix": (7, 3), "scalar": ()}
    assert torch.equal(tensors["matrix"], full) and tensors["matrix"].dtype == dtype
    assert tensors["scalar"].item() == 5
    for start in range(8):
        for stop in range(start, 8):
            into = torch.empty(stop - start, 3)
            tensors.read("matrix", slice(start, stop), into)
            assert torch.equal(into, full[start:stop].float())


def header(path: Path, about: dict[str, object], name: str = "matrix") -> None:
    """A file of one tensor of 2 x 3 zeros, with these lines in its header."""
    entry = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    text = json.dumps({"__metadata__": about, name: entry}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(24))


def placed(*offsets: object) -> dict[str, object]:
    return {"DCP_SHARDING_INFO": json.dumps({"matrix": {"saved_offsets": list(offsets)}})}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (placed(0, 0), placed(0, 0)),  # twice
        (placed(0, 0), placed(1, 0)),  # overlapping
        (placed(0, 0), placed(3, 0)),  # a gap
        (placed(1, 0), placed(3, 0)),  # without a beginning
        (placed(-2, 0), placed(0, 0)),
        (placed(0, 0), placed(2, 3)),  # not rows
        (placed(0, 0), placed(2.0, 0)),
        (placed(0, 0), placed("2", 0)),
        (placed(0, 0), placed(None)),
        (placed(0, 0), placed(2, [0])),
        (placed(0, 0), {"DCP_SHARDING_INFO": "{"}),
        (placed(0, 0), {"DCP_SHARDING_INFO": "[" * 100_000}),
        (placed(0, 0), {"DCP_SHARDING_INFO": "{}"}),
        (placed(0, 0), {"DCP_SHARDING_INFO": "[1, 2]"}),
        (placed(0, 0), {"DCP_SHARDING_INFO": '{"matrix": 3}'}),
    ],
)
def test_shards_of_strangers(tmp_path: Path, one: dict, other: dict) -> None:
    """Rows are there exactly once, or nothing is read."""
    for rank, about in enumerate((one, other)):
        header(tmp_path / shard_name(MODEL, rank, 2), about)
    with pytest.raises(UserError, match=r"cannot be read \(model-0000[12]-of-00002\.safetensors: "):
        check_finite(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    header(tmp_path / shard_name(MODEL, 1, 3), placed(0, 0))
    with pytest.raises(UserError, match=r"model-00001-of-00003\.safetensors: is missing"):
        check_finite(tmp_path)
    header(tmp_path / MODEL, {})  # a whole file is taken first
    assert file_names(tmp_path, MODEL) == [MODEL]
    check_finite(tmp_path)
