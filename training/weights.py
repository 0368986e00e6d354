"""The tensors of checkpoints, in safetensors files, which execute nothing when they are read. They
may be somebody else's: names, types and shapes are checked, and that all values are finite."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from model import GPT, ModelConfig
from training.distributed import shard_as
from training.optimizer import Optimizer
from training.state import readable

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
FLOATS = ("F64", "F32", "F16", "BF16")
LEARNED_POSITIONS = "position.weight"


class Tensors(Mapping[str, Tensor]):
    """The tensors of safetensors files by name; each access reads one from the disk, so that a
    model is never in memory twice.

    Raises ValueError if a file cannot be read, if two hold the same name, or if a tensor that is
    read has values that are not finite.
    """

    def __init__(self, *files: Path) -> None:
        self._files: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        for path in files:
            with _opened(path) as file:
                for name in file.keys():  # noqa: SIM118 (not a mapping)
                    if name in self._files:
                        raise ValueError(f"{path.name}: {name:.80} is also in another file")
                    view = file.get_slice(name)
                    self._files[name], self.dtypes[name] = path, view.get_dtype()
                    self.shapes[name] = tuple(view.get_shape())

    def __getitem__(self, name: str) -> Tensor:
        # Opened anew for each: pages of a mapped file that were read count as memory.
        with _opened(self._files[name]) as file:
            tensor = file.get_tensor(name)
        # Not `isfinite`, which takes more memory than the values.
        is_float = tensor.is_floating_point()
        if not is_float or (tensor.numel() and not all(map(math.isfinite, tensor.aminmax()))):
            raise ValueError(f"{name} has values that are not finite floating-point numbers")
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._files  # Mapping's own reads the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _opened(path: Path) -> safe_open:
    try:
        is_file = path.is_file()
    except OSError:  # a name that is too long
        is_file = False
    if not is_file:
        raise ValueError(f"{path.name:.80}: is missing, or is not a file; restore it")
    try:
        return safe_open(path, "pt")
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path.name}: cannot be read ({reason}); restore it") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    path.write_bytes(save(plain, {"format": "pt"}))


@contextmanager
def open_part(checkpoint: Path, part: str) -> Iterator[Tensors]:
    """MODEL or OPTIMIZER of a checkpoint, which the block reads. Raises UserError if it cannot."""
    with readable(checkpoint / part) as path:
        yield Tensors(path)


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
    with open_part(checkpoint, MODEL) as found:
        model = _on_meta(config, vocab_size)
        expected = {name: tuple(each.shape) for name, each in model.named_parameters()}
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
    """Load weights into a model; into one with a shorter context, the first positions. Raises
    UserError if they are damaged, do not fit, or are not finite."""
    with open_part(checkpoint, MODEL) as weights:
        _load(weights, dict(model.named_parameters()))


def load_optimizer(optimizer: Optimizer, checkpoint: Path) -> None:
    """Load the state of an optimizer. Raises UserError if it is damaged, does not fit, or is not
    finite."""
    with open_part(checkpoint, OPTIMIZER) as state:
        _load(state, optimizer.state_tensors())


@torch.no_grad()
def _load(found: Tensors, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if name not in found:
            raise ValueError(f"{name} is missing")
        full = found[name]
        if name == LEARNED_POSITIONS:
            full = full[: len(tensor)]
        if full.shape != tensor.shape:
            raise ValueError(
                f"{name} has the shape {list(full.shape)} instead of {list(tensor.shape)}"
            )
        tensor.copy_(shard_as(full.to(tensor.device), tensor))
