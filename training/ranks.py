"""Several processes that train one model: who they are, and what they tell one another.

`torchrun` starts the processes; each takes its slice of every global batch. Without torchrun there
is one rank, and nothing here does anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

PARALLEL = ("ddp", "fsdp")


@dataclass(frozen=True)
class Ranks:
    """This process is number `rank` of `count`."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes files and talks to people."""
        return self.rank == 0

    def slice(self, batch: Tensor) -> Tensor:
        """This rank's rows of a global batch, whose size must be a multiple of `count`."""
        return batch.chunk(self.count)[self.rank] if self.count > 1 else batch

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, element by element; in place."""
        if self.count > 1:
            torch.distributed.all_reduce(values)
        return values

    def largest(self, values: Tensor) -> Tensor:
        """The largest over all ranks, element by element; in place."""
        if self.count > 1:
            torch.distributed.all_reduce(values, torch.distributed.ReduceOp.MAX)
        return values

    def wait(self) -> None:
        """Returns when all ranks are here."""
        if self.count > 1:
            torch.distributed.barrier()

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """The first rank runs the block, and then the others do: they find what it has made."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()

    def tell(self, text: str) -> str:
        """What the first rank gives, for every rank."""
        if self.count == 1:
            return text
        told = [text]
        torch.distributed.broadcast_object_list(told)
        return told[0]

    def wrap(self, model: nn.Module, parallel: str, device: torch.device) -> nn.Module:
        """Moves `model` to the device; returns the module to call in training, whose gradients are
        averaged over the ranks.

        `ddp` keeps a whole model on every rank. `fsdp` (FSDP2, `fully_shard`) cuts every parameter
        of `model` itself into slices, one a rank, and brings them together block by block, so that
        no device ever holds the whole.
        """
        if self.count == 1:
            return model.to(device)
        if parallel == "ddp":
            return nn.parallel.DistributedDataParallel(model.to(device))
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (self.count,))
        for module in model.modules():
            for block in module if isinstance(module, nn.ModuleList) else ():
                fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or all of one (a DTensor) of which each rank holds a part."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def part_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Of a whole tensor, what belongs with `other`: all of it, or this rank's part."""
    if not hasattr(other, "device_mesh"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(other, DTensor)
    # Every rank has the whole: none needs to send it.
    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """Meet the other ranks: over gloo on CPUs, over nccl on GPUs, of which each takes its own."""
    if "LOCAL_RANK" not in os.environ:  # torchrun did not start this process
        yield Ranks()
        return
    import torch.distributed as dist

    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    yield Ranks(dist.get_rank(), dist.get_world_size())
    # Not after an exception: the others may never come.
    dist.destroy_process_group()
