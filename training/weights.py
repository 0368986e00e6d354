"""Reading the tensors of a checkpoint, which somebody else may have made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from errors import UserError
from model import GPT, ModelConfig
from training.optimizer import Optimizer
from training.progress import readable
from training.ranks import own_rows

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
FLOATS = ("F64", "F32", "F16", "BF16")
LEARNED_POSITIONS = "position.weight"


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
    expected = {name: list(each.shape) for name, each in model.named_parameters()}
    with readable(checkpoint / MODEL) as path, safe_open(path, "pt") as file:
        found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        for name in (*expected, *found):
            if name not in found or name not in expected:
                what = "missing" if name in expected else "not a part of the model"
                raise ValueError(f"{name} is {what}")
            if found[name].get_shape() != expected[name]:
                raise ValueError(
                    f"{name} has the shape {found[name].get_shape()}; the model in config.yaml "
                    f"needs {expected[name]}"
                )
            if found[name].get_dtype() not in FLOATS:
                raise ValueError(f"{name} has the type {found[name].get_dtype()}")
    tensors = (*model.parameters(), *model.buffers())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def check_finite(checkpoint: Path) -> None:
    """Raises UserError unless all weights are finite. Takes the memory of one of them at a time."""
    with readable(checkpoint / MODEL) as path, safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118
            check_values(name, file.get_tensor(name))


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Load weights into a model: into a sharded one, those of this rank; into one with a shorter
    context, the first positions. Raises UserError if they are damaged, do not fit, or are not
    finite."""
    with readable(checkpoint / MODEL) as path:
        _load(path, dict(model.named_parameters()))


def load_optimizer(optimizer: Optimizer, checkpoint: Path) -> None:
    """Load the state of an optimizer: of a sharded model, that of this rank. Raises UserError if it
    is damaged, does not fit, or is not finite."""
    with readable(checkpoint / OPTIMIZER) as path:
        _load(path, optimizer.state_tensors())


@torch.no_grad()
def _load(path: Path, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        own, rows = own_rows(tensor)
        # Opened anew for each tensor: pages of a mapped file that were read count as memory.
        with safe_open(path, "pt") as file:
            stored = file.get_slice(name)
            shape, expected = stored.get_shape(), list(tensor.shape)
            if name == LEARNED_POSITIONS:
                shape = [min(shape[0], expected[0]), *shape[1:]]
            if shape != expected:
                raise ValueError(f"{name} has the shape {shape} instead of {expected}")
            values = stored[rows] if shape else file.get_tensor(name)
            check_values(name, values)
            own.copy_(values)


def check_values(name: str, values: Tensor) -> None:
    """Raises ValueError unless all are finite floating-point numbers."""
    is_float = values.is_floating_point()
    # Not `isfinite`, which takes more memory than the values.
    if not is_float or (values.numel() and not sum(map(math.isfinite, values.aminmax())) == 2):
        raise ValueError(f"{name} has values that are not finite floating-point numbers")
