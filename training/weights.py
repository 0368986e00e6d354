"""The tensors of checkpoints, in safetensors files, which execute nothing when they are read. They
may be somebody else's: names, types and shapes are checked, and that all values are finite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from model import GPT, ModelConfig
from training.distributed import shard_as
from training.optimizer import Optimizer
from training.state import readable

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
FLOATS = ("F64", "F32", "F16", "BF16")
LEARNED_POSITIONS = "position.weight"


def read_tensor(path: Path, name: str) -> Tensor:
    """One tensor of a safetensors file. Raises ValueError if it has values that are not finite."""
    # Opened anew for each: pages of a mapped file that were read count as memory.
    with safe_open(path, "pt") as file:
        tensor = file.get_tensor(name)
    # Not `isfinite`, which takes more memory than the values.
    is_float = tensor.is_floating_point()
    if not is_float or (tensor.numel() and not all(map(math.isfinite, tensor.aminmax()))):
        raise ValueError(f"{name} has values that are not finite floating-point numbers")
    return tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    path.write_bytes(save(plain, {"format": "pt"}))


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
    parameters = _on_meta(config, vocab_size).named_parameters()
    return {name: tuple(parameter.shape) for name, parameter in parameters}


def check_weights(config: ModelConfig, vocab_size: int, checkpoint: Path) -> int:
    """The bytes of memory that the model takes. Raises UserError unless the weights are those of
    such a model. Reads only their names, types and shapes, and takes no memory."""
    with readable(checkpoint / MODEL) as path, safe_open(path, "pt") as file:
        model = _on_meta(config, vocab_size)
        expected = {name: [*each.shape] for name, each in model.named_parameters()}
        found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        for name in (*expected, *found):
            if name not in found or name not in expected:
                what = "missing" if name in expected else "not a part of the model"
                raise ValueError(f"{name} is {what}")
            if (shape := found[name].get_shape()) != expected[name]:
                raise ValueError(
                    f"{name} has the shape {shape}; the model in config.yaml needs {expected[name]}"
                )
            if (kind := found[name].get_dtype()) not in FLOATS:
                raise ValueError(f"{name} has the type {kind}")
    tensors = (*model.parameters(), *model.buffers())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def check_finite(checkpoint: Path) -> None:
    """Raises UserError unless all weights are finite. Takes the memory of one of them at a time."""
    with readable(checkpoint / MODEL) as path, safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            read_tensor(path, name)


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Load weights into a model; into one with a shorter context, the first positions. Raises
    UserError if they are damaged, do not fit, or are not finite."""
    _load(checkpoint / MODEL, dict(model.named_parameters()))


def load_optimizer(optimizer: Optimizer, checkpoint: Path) -> None:
    """Load the state of an optimizer. Raises UserError if it is damaged, does not fit, or is not
    finite."""
    _load(checkpoint / OPTIMIZER, optimizer.state_tensors())


@torch.no_grad()
def _load(file: Path, tensors: Mapping[str, Tensor]) -> None:
    with readable(file) as path:
        for name, tensor in tensors.items():
            full = read_tensor(path, name)
            if name == LEARNED_POSITIONS:
                full = full[: len(tensor)]
            if full.shape != tensor.shape:
                raise ValueError(
                    f"{name} has the shape {[*full.shape]} instead of {[*tensor.shape]}"
                )
            tensor.copy_(shard_as(full.to(tensor.device), tensor))
