"""Reading the tensors of a checkpoint, which somebody else may have made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from errors import UserError
from model import GPT, ModelConfig, own_rows
from training.optimizer import Optimizer
from training.progress import readable
from training.tensors import Tensors

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
SHARD = r"(?:model|optimizer)-\d{5}-of-(\d{5})\.safetensors"
FLOATS = ("F64", "F32", "F16", "BF16")
LEARNED_POSITIONS = "position.weight"


def file_names(checkpoint: Path, part: str) -> list[str]:
    """The files of MODEL or OPTIMIZER in a checkpoint: one, or the shards of the ranks that wrote
    it."""
    if not os.path.lexists(checkpoint / part):
        names = (re.fullmatch(SHARD, each.name) for each in checkpoint.glob("*-of-*.safetensors"))
        if n_ranks := max((int(name[1]) for name in names if name), default=0):
            return [shard_name(part, rank, n_ranks) for rank in range(n_ranks)]
    return [part]


def shard_name(part: str, rank: int, n_ranks: int) -> str:
    """The file of MODEL or OPTIMIZER that a rank writes, such as model-00001-of-00004.safetensors
    for rank 0 of 4."""
    return part.replace(".", f"-{rank + 1:05d}-of-{n_ranks:05d}.")


@contextmanager
def open_part(checkpoint: Path, part: str) -> Iterator[Tensors]:
    """MODEL or OPTIMIZER of a checkpoint, which the block reads. Raises UserError if it cannot."""
    files = [checkpoint / name for name in file_names(checkpoint, part)]
    with readable(files[0] if len(files) == 1 else checkpoint):
        yield Tensors(files)


def _on_meta(config: ModelConfig, vocab_size: int) -> GPT:
    """The model without memory for its tensors. Raises ValueError if it is too large even so."""
    try:
        with torch.device("meta"):
            return GPT(config, vocab_size, end=0)  # no weight depends on the id
    except RuntimeError:
        raise ValueError("the model is too large") from None


def parameter_shapes(config: ModelConfig, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter that a checkpoint holds. Takes no memory. Raises ValueError if
    the model is too large to be described."""
    model = _on_meta(config, vocab_size)
    return {name: tuple(each.shape) for name, each in model.named_parameters()}


def check_weights(config: ModelConfig, vocab_size: int, checkpoint: Path) -> int:
    """The bytes of memory that the model takes. Raises UserError unless the weights are those of
    such a model. Reads only their names, types and shapes, and takes no memory."""
    try:
        model = _on_meta(config, vocab_size)
    except ValueError as error:
        raise UserError(f"{checkpoint}: {error}; choose another run") from error
    expected = {name: tuple(each.shape) for name, each in model.named_parameters()}
    with open_part(checkpoint, MODEL) as found:
        for name in (*expected, *found):
            if name not in found or name not in expected:
                what = "missing" if name in expected else "not a part of the model"
                raise ValueError(f"{name} is {what}")
            if found.shapes[name] != expected[name]:
                raise ValueError(
                    f"{name} has the shape {list(found.shapes[name])}; the model in config.yaml "
                    f"needs {list(expected[name])}"
                )
            if found.dtypes[name] not in FLOATS:
                raise ValueError(f"{name} has the type {found.dtypes[name]}")
    tensors = (*model.parameters(), *model.buffers())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def check_finite(checkpoint: Path) -> None:
    """Raises UserError unless all weights are finite. Takes the memory of one of them at a time."""
    with open_part(checkpoint, MODEL) as weights:
        for name in weights:
            weights[name]  # which checks them


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Load weights into a model: into a sharded one, those of this rank; into one with a shorter
    context, the first positions. Raises UserError if they are damaged, do not fit, or are not
    finite."""
    with open_part(checkpoint, MODEL) as weights:
        _load(weights, dict(model.named_parameters()))


def load_optimizer(optimizer: Optimizer, checkpoint: Path) -> None:
    """Load the state of an optimizer: of a sharded model, that of this rank. Raises UserError if it
    is damaged, does not fit, or is not finite."""
    with open_part(checkpoint, OPTIMIZER) as state:
        _load(state, optimizer.state_tensors())


@torch.no_grad()
def _load(found: Tensors, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if name not in found:
            raise ValueError(f"{name} is missing")
        shape, expected = list(found.shapes[name]), list(tensor.shape)
        if name == LEARNED_POSITIONS:
            shape = [min(shape[0], expected[0]), *shape[1:]]
        if shape != expected:
            raise ValueError(f"{name} has the shape {shape} instead of {expected}")
        own, rows = own_rows(tensor)
        found.read(name, rows, own)
