"""Several processes that train one model: their ranks, and communication between them.

`torchrun` starts the processes; each takes its share of every global batch. Without torchrun there
is one rank, and all communication here is a no-op.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer
from types import MethodType

import torch
from torch import Tensor, nn

from errors import UserError, check_choice

PARALLEL = ("ddp", "fsdp", "hsdp")
CPU = torch.device("cpu")
WAIT_SECONDS = 15.0


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

    def shard_batch(self, batch: Tensor) -> Tensor:
        """The rows of this rank. The rows of the batch must be a multiple of `world_size`."""
        return batch.chunk(self.world_size)[self.rank] if self.world_size > 1 else batch

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, elementwise and in place. Tensors may be on a CPU or on the
        device."""
        if self.world_size > 1:
            torch.distributed.all_reduce(values)
        return values

    def all_reduce_max(self, values: Tensor) -> Tensor:
        """The maximum over all ranks; otherwise as `all_reduce_sum`."""
        if self.world_size > 1:
            torch.distributed.all_reduce(values, torch.distributed.ReduceOp.MAX)
        return values

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Run the block on the main process, and then on the others, which reuse its files."""
        if not self.is_main:
            torch.distributed.barrier()
        yield
        if self.is_main and self.world_size > 1:
            torch.distributed.barrier()

    def broadcast(self, text: str) -> str:
        """The `text` of the main process, on every rank."""
        if self.world_size == 1:
            return text
        texts = [text]
        torch.distributed.broadcast_object_list(texts)
        return texts[0]

    def nodes(self) -> tuple[int, int]:
        """The number of nodes, and of ranks on this one; without torchrun, there is one node."""
        local = os.environ.get("LOCAL_WORLD_SIZE", "")
        nodes = os.environ.get("GROUP_WORLD_SIZE", "")
        n_local = int(local) if local.isdecimal() and int(local) else self.world_size
        return int(nodes) if nodes.isdecimal() else -(-self.world_size // n_local), n_local

    def equal_nodes(self) -> tuple[int, int]:
        """The number of nodes, and of ranks on each. Raises UserError if torchrun started more
        ranks on some nodes than on others."""
        nodes, n_local = self.nodes()
        if nodes * n_local != self.world_size:
            raise UserError(
                f"trainer.parallel: hsdp needs nodes with equally many ranks, but {n_local} of "
                f"{self.world_size} ranks are on this one of {nodes} nodes; choose fsdp, or start "
                "as many on every node"
            )
        return nodes, n_local

    def parallelize(self, model: nn.Module, parallel: str, in_bf16: bool = False) -> nn.Module:
        """Move `model` to the device; return the module to call in training, whose gradients are
        averaged over the ranks.

        `ddp` keeps a full model on every rank and wraps it. `fsdp` (FSDP2, `fully_shard`) shards
        every parameter of `model` in place, and gathers them block by block, so that no device
        holds the full model. `hsdp` shards it among the ranks of a node, and every node has it
        whole. A model on the meta device stays there.

        If autocast computes `in_bf16`, blocks are gathered in bfloat16, whose products are the
        same, and their gradients are averaged in float32. The stream between the blocks, and what
        is outside of them, stay in float32: the gradient of an embedding is a sum over many tokens.
        """
        if self.world_size == 1:
            return model.to(self.device)
        return self.wrap(model, parallel, in_bf16)

    def wrap(self, model: nn.Module, parallel: str, in_bf16: bool = False) -> nn.Module:
        """`parallelize`, also with one rank."""
        check_choice("parallel", parallel, PARALLEL)
        if parallel == "ddp":
            return nn.parallel.DistributedDataParallel(model.to(self.device))
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        size = (self.world_size,) if parallel == "fsdp" else self.equal_nodes()
        names = ("replicate", "shard")[-len(size) :]
        mesh = init_device_mesh(self.device.type, size, mesh_dim_names=names)
        precision = MixedPrecisionPolicy()
        if in_bf16:
            precision = MixedPrecisionPolicy(
                torch.bfloat16, torch.float32, cast_forward_inputs=False
            )
        for module in model.modules():
            for block in module if isinstance(module, nn.ModuleList) else ():
                if in_bf16:  # also for callers without autocast
                    block.forward = torch.autocast(self.device.type, torch.bfloat16)(block.forward)
                fully_shard(block, mesh=mesh, mp_policy=precision)
        fully_shard(model, mesh=mesh)
        return model


def reshard(model: nn.Module) -> None:
    """Free the full parameters that FSDP keeps after a forward pass that no backward pass follows:
    those outside the blocks."""
    for module in model.modules():
        if isinstance(free := getattr(module, "reshard", None), MethodType):
            free()


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """Join the process group: gloo for tensors on CPUs, nccl for those on GPUs, of which each rank
    takes its own."""
    if "LOCAL_RANK" not in os.environ:  # torchrun did not start this process
        yield Ranks(device)
        return
    import torch.distributed as dist

    try:
        if device.type == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        # With GPUs, what the hosts tell each other goes through gloo: no host waits for its GPU.
        with _note_on_waiting():
            dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    except dist.DistError as error:  # after half an hour
        reason = str(error).splitlines()[0]
        raise UserError(
            f"WORLD_SIZE: not all ranks have come ({reason}); start all of them"
        ) from error
    except ValueError as error:  # a variable that torchrun sets is missing or is not a number
        raise UserError(
            f"LOCAL_RANK: is set, but not as torchrun does ({error}); unset it, or use torchrun"
        ) from error
    yield Ranks(device, dist.get_rank(), dist.get_world_size())
    # Skipped after an exception: the other ranks may never get here.
    dist.destroy_process_group()


@contextmanager
def _note_on_waiting() -> Iterator[None]:
    """Say on standard error if the block waits long for other ranks, which may never come."""
    get = os.environ.get
    note = (
        f"rank {get('RANK')} of {get('WORLD_SIZE')} is waiting for the others, at "
        f"{get('MASTER_ADDR')}:{get('MASTER_PORT')}"
    )
    timer = Timer(WAIT_SECONDS, print, [note], {"file": sys.stderr})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def leave_ranks(status: int = 0) -> None:
    """End the process at once if it is a rank of several; otherwise do nothing.

    PyTorch's caches keep the process group after its end, and with it gloo's threads. A thread that
    frees a tensor while Python shuts down aborts the process, after a training that went well.
    """
    if "LOCAL_RANK" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
