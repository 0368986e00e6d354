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

from common.device import check_memory
from model import GPT, ModelConfig
from store.settings import readable

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
LEARNED_POSITIONS = "position.weight"
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def read_tensor(path: Path, name: str) -> Tensor:
    """One tensor of a safetensors file. Raises ValueError if it has another type than `FLOATS`, or
    values that are not finite."""
    # Opened anew for each: pages of a mapped file that were read count as memory.
    with safe_open(path, "pt") as file:
        tensor = file.get_tensor(name)
    if tensor.dtype not in FLOATS:
        raise ValueError(f"{name} has the type {str(tensor.dtype).removeprefix('torch.')}")
    # Not `isfinite`, which takes more memory than the values.
    if tensor.numel() and not all(map(math.isfinite, tensor.aminmax())):
        raise ValueError(f"{name} has values that are not finite")
    return tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    path.write_bytes(save(plain, {"format": "pt"}))


def load_model(config: ModelConfig, vocab_size: int, checkpoint: Path) -> GPT:
    """The model with the weights of a checkpoint. Raises UserError if they are damaged or not those
    of such a model, as far as possible before memory is taken for it."""
    n_weights = config.n_weights(vocab_size)
    check_memory(4 * n_weights, torch.device("cpu"), "it", "or another run")
    with readable(checkpoint / MODEL) as path:
        if path.stat().st_size < 2 * n_weights:  # of float16, the smallest type
            raise ValueError("it is too small for the model in config.yaml")
    model = GPT(config, vocab_size)
    load_weights(model, checkpoint)
    return model


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Load weights into a model; into one with a shorter context, the first positions. Raises
    UserError if they are damaged, not those of such a model, or not finite."""
    load_tensors(checkpoint / MODEL, dict(model.named_parameters()))


@torch.no_grad()
def load_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill tensors with those of a file, by their names. Raises UserError as `load_weights`."""
    with readable(file) as path:
        with safe_open(path, "pt") as stored:
            names = {*stored.keys()}
        for name in sorted(names ^ tensors.keys()):
            what = "missing" if name in tensors else "not expected"
            raise ValueError(f"{name:.80} is {what}")
        for name, tensor in tensors.items():
            value = read_tensor(path, name)
            if name == LEARNED_POSITIONS:
                value = value[: len(tensor)]
            if value.shape != tensor.shape:
                raise ValueError(
                    f"{name} has the shape {[*value.shape]} instead of {[*tensor.shape]}"
                )
            tensor.copy_(value)
