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


def own_rows(tensor: Tensor) -> tuple[Tensor, slice]:
    """The part of a tensor that this rank holds, and which rows of the full tensor it is: all of
    them if the tensor is not a DTensor."""
    if not hasattr(tensor, "device_mesh"):
        return tensor, slice(0, tensor.shape[0] if tensor.ndim else 0)
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    local, mesh = tensor.to_local(), tensor.device_mesh
    axis = mesh.ndim - 1  # with hsdp, the first axis of the mesh is that of the nodes
    share = -(-tensor.shape[0] // mesh.size(axis))  # as torch.chunk: the last ranks have less
    first = min(mesh.get_local_rank(axis) * share, tensor.shape[0])
    return local, slice(first, first + local.shape[0])
