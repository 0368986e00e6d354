"""Several processes that train one model, by PyTorch's DistributedDataParallel (DDP).

Each process that torchrun starts is a *rank*: it holds the whole model, and takes its share of
every global batch. Without torchrun there is one rank, and nothing is sent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from common.errors import UserError, printable

CPU = torch.device("cpu")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Ranks:
    """This process is rank `rank` of `world_size`, and computes on `device`."""

    device: torch.device = CPU
    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, which alone writes files and prints."""
        return self.rank == 0

    def print_main(self, line: str) -> None:
        """Print a line, on the main process."""
        if self.is_main:
            print(printable(line))

    def shard_batch(self, batch: Tensor) -> Tensor:
        """The rows of this rank. The rows of the batch must be a multiple of `world_size`."""
        return batch.chunk(self.world_size)[self.rank]

    def mean(self, value: Tensor) -> Tensor:
        """The mean over all ranks of a tensor on the device, which it may overwrite."""
        return self._reduce(value) / self.world_size

    def sum(self, values: Sequence[float | int]) -> list[float]:
        """The sums over all ranks, elementwise, in float64."""
        return self._reduce(torch.tensor(values, dtype=torch.float64)).tolist()

    def max(self, values: Sequence[int]) -> list[int]:
        """The maxima over all ranks, elementwise."""
        if self.world_size == 1:  # every step asks
            return [*values]
        return self._reduce(torch.tensor(values), dist.ReduceOp.MAX).tolist()

    def _reduce(self, values: Tensor, how: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
        if self.world_size > 1:
            dist.all_reduce(values, how)
        return values

    def broadcast(self, value: Value) -> Value:
        """The `value` of the main process, on every rank."""
        values = [value]
        if self.world_size > 1:
            dist.broadcast_object_list(values)
        return values[0]

    def main_first(self, make: Callable[[], Value]) -> Value:
        """The result of `make`, which the main process calls before the others, so that they find
        the files that it writes."""
        if self.is_main:
            value = make()
        if self.world_size > 1:
            dist.barrier()
        return value if self.is_main else make()

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module to call in training, whose gradients are averaged over the ranks: `model`
        itself if there is one. It is on the device, with the same weights on all ranks."""
        return model if self.world_size == 1 else DistributedDataParallel(model)

    def gradient_sync(self, parallel: nn.Module, now: bool) -> AbstractContextManager[None]:
        """Whether the backward pass after a forward pass in this context averages the gradients
        over the ranks; those of other micro-batches are summed on each rank."""
        if now or not isinstance(parallel, DistributedDataParallel):
            return nullcontext()
        return parallel.no_sync()


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """Join the process group: gloo on CPUs, nccl on GPUs, of which each rank takes its own."""
    if "LOCAL_RANK" not in os.environ:  # torchrun did not start this process
        yield Ranks(device)
        return
    try:
        if device.type == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    except (dist.DistError, ValueError) as error:  # too late, or a variable is missing or wrong
        raise UserError(
            f"LOCAL_RANK: the ranks cannot join ({str(error).splitlines()[0]}); start all of them "
            "with torchrun, or unset LOCAL_RANK"
        ) from error
    yield Ranks(device, dist.get_rank(), dist.get_world_size())
    # Skipped after an exception: the other ranks may never get here.
    dist.destroy_process_group()


@contextmanager
def leaving_ranks() -> Iterator[None]:
    """End a process of torchrun right after the block, unless an error was raised: PyTorch keeps
    gloo's threads, and one that frees a tensor while Python shuts down aborts the process."""
    status: str | int | None = 0
    try:
        yield
    except SystemExit as end:
        status = end.code
    if "LOCAL_RANK" in os.environ and isinstance(status, int):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
