"""The weights in a folder of Hugging Face transformers, from and to those of a checkpoint.

Promises: reading executes nothing, and refuses what is not exactly the model that config.json
describes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from exchange.tensors import Tensors
from files import read_json
from model import ModelConfig
from model.hugging_face import BUFFERS, PREFIXES, Part, family, parts
from training.weights import parameter_shapes, write_tensors

HEAD = "lm_head.weight"
SHARD = 5 * 10**9  # bytes of one file of weights at most, as transformers has it
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CODES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}  # in safetensors files


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

    def load(self) -> Tensor:
        """The tensor in its dtype. Raises ValueError if a value is too large for it."""
        tensor = self.read()
        converted = tensor.to(DTYPES[self.dtype])
        if converted.dtype != tensor.dtype and not converted.isfinite().all():
            raise ValueError(
                f"dtype: {self.name} has values beyond the range of {self.dtype}; give float32 or "
                "bfloat16"
            )
        return converted


def write_weights(folder: Path, config: ModelConfig, weights: Tensors, dtype: str | None) -> None:
    """Write model.safetensors, or several files and their index if they are large.

    `weights` are a checkpoint's; `dtype` is None to keep theirs.
    """
    entries = [_entry(part, weights, dtype) for part in parts(config)]
    shards: list[list[Entry]] = [[]]
    for entry in entries:
        if shards[-1] and sum(each.n_bytes for each in [*shards[-1], entry]) > SHARD:
            shards.append([])
        shards[-1].append(entry)
    if len(shards) == 1:
        _write(folder / WEIGHTS, entries)
        return
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write(folder / name, shard)
        index |= {each.name: name for each in shard}
    total = sum(each.n_bytes for each in entries)
    contents = {"metadata": {"total_size": total}, "weight_map": index}
    (folder / INDEX).write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")


def _write(path: Path, entries: Sequence[Entry]) -> None:
    write_tensors(path, {entry.name: entry.load() for entry in entries})


def _entry(part: Part, weights: Tensors, dtype: str | None) -> Entry:
    """The tensor of transformers that holds `part`. A bias that the model does not have is zero."""
    names = [name for name in part.parameters if name in weights]
    likes = names or [name.removesuffix("bias") + "weight" for name in part.parameters]
    shapes = [weights.shapes[name] for name in likes]
    shape = (sum(each[0] for each in shapes), *(shapes[0][1:] if names else ()))

    def read() -> Tensor:
        if not names:
            return torch.zeros(shape)
        tensors = [weights[name] for name in names]
        tensor = torch.cat(tensors) if len(tensors) > 1 else tensors[0]
        return tensor.T if part.transposed else tensor

    stored = CODES.get(weights.dtypes[likes[0]], "float32")
    return Entry(part.name, shape[::-1] if part.transposed else shape, dtype or stored, read)


def read_weights(
    folder: Path, config: ModelConfig, vocab_size: int, dtype: str | None
) -> list[Entry]:
    """Our parameters, to be written from the weights in a folder. `dtype` is None to keep theirs.

    Checks their names, types and shapes against config.json, and reads no more. Raises ValueError.
    """
    stored = Tensors(*_files(folder))
    shapes = parameter_shapes(config, vocab_size)
    wanted = list(parts(config))
    prefix = PREFIXES[family(config)]
    is_bare = not any(name.startswith(prefix) for name in stored)  # stored without its head
    if is_bare:
        wanted = [part._replace(name=part.name.removeprefix(prefix)) for part in wanted]
    _check_names(stored, wanted)
    entries = []
    for part in wanted:
        rows = [shapes[name][0] for name in part.parameters]
        shape = (sum(rows), *shapes[part.parameters[0]][1:])
        shape = shape[::-1] if part.transposed else shape
        if stored.shapes[part.name] != shape:
            raise ValueError(
                f"{part.name}: has the shape {list(stored.shapes[part.name])}; the "
                f"model in config.json needs {list(shape)}; choose another folder"
            )
        if stored.dtypes[part.name] not in CODES:
            raise ValueError(
                f"{part.name}: has the type {stored.dtypes[part.name]}; choose "
                f"weights of type {', '.join(CODES)}"
            )
        for index, name in enumerate(part.parameters):
            read = partial(_rows, stored, part, sum(rows[:index]), rows[index])
            kind = dtype or CODES[stored.dtypes[part.name]]
            entries.append(Entry(name, shapes[name], kind, read))
    return entries


def _rows(stored: Tensors, part: Part, start: int, length: int) -> Tensor:
    tensor = stored[part.name]
    return (tensor.T if part.transposed else tensor)[start : start + length]


def _check_names(stored: Tensors, wanted: Sequence[Part]) -> None:
    names = {part.name for part in wanted}
    for name in names.difference(stored):
        raise ValueError(f"{name}: is missing among the weights; choose another folder")
    for name in stored.keys() - names:
        if name == HEAD:  # a copy of the embedding, with which it is tied
            if not torch.equal(stored[name], stored[wanted[0].name]):
                raise ValueError(
                    f"{name}: is not the embedding, although tie_word_embeddings is "
                    "true in config.json; choose another folder"
                )
        elif not BUFFERS.fullmatch(name):
            raise ValueError(
                f"{name:.80}: is not a part of the model in config.json; choose another folder"
            )


def _is_inside(name: str) -> bool:
    return Path(name).name == name and name not in ("", "..")


def _files(folder: Path) -> list[Path]:
    """The files of weights in a folder."""
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if (folder / INDEX).exists():
        try:
            names = set(read_json(folder / INDEX, 1 << 25)["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{INDEX}: cannot be read ({error}); restore it") from None
        if any(not isinstance(name, str) or not _is_inside(name) for name in names):
            raise ValueError(f"{INDEX}: names files outside the folder; choose another folder")
        return [folder / name for name in sorted(names)]
    pickles = sorted(each.name for each in folder.glob("*.bin")) + sorted(
        each.name for each in folder.glob("*.pt*")
    )
    if pickles:
        raise ValueError(
            f"{pickles[0]}: is a pickle, which can execute code when it is opened; "
            f"save the model as {WEIGHTS}"
        )
    raise ValueError(f"{WEIGHTS}: is missing; choose another folder")
