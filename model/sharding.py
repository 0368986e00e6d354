"""Calling a model whose parameters are sharded over several ranks by FSDP2 (`fully_shard`).

Promises: nothing changes for a model that is not sharded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


def is_sharded(module: nn.Module) -> bool:
    """Whether FSDP2 shards this module, and all ranks must call it together."""
    return hasattr(module, "unshard")


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Gather the parameters of a sharded module from all ranks, which enter this together, and free
    them at the end. Modules inside it that are sharded themselves, as the blocks of a model, still
    gather their own when they are called.

    FSDP2 does the same around `forward` alone.
    """
    if not is_sharded(module):
        yield
        return
    module.unshard()  # type: ignore[operator]
    try:
        yield
    finally:
        module.reshard()  # type: ignore[operator]


def full_tensor(tensor: Tensor) -> Tensor:
    """The tensor itself, or the full tensor of a DTensor, gathered from all ranks."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
