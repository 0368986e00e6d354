"""Several processes that train one model (ranks), by PyTorch's DDP and FSDP2.

`torchrun` starts the processes; each takes its share of every global batch. Without torchrun there
is one rank, and nothing is sent. Checkpoints hold full tensors. Callbacks that read a sharded model
in training read a full copy of it on the main process.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from common.errors import UserError, check_choice, print
from training.callback import Callback, EvalMetrics

if TYPE_CHECKING:
    from training.config import TrainerConfig
    from training.trainer import Trainer

PARALLEL = ("ddp", "fsdp", "hsdp")
CPU = torch.device("cpu")
WAIT_SECONDS = 15.0

Value = TypeVar("Value")
Model = TypeVar("Model", bound=nn.Module)


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

    @property
    def local_world_size(self) -> int:
        """The number of ranks on this node."""
        local = os.environ.get("LOCAL_WORLD_SIZE", "")
        return int(local) if local.isdecimal() and int(local) else self.world_size

    def check(self, config: TrainerConfig) -> None:
        """Raise UserError if the ranks cannot share a batch or, with hsdp, a model."""
        parts = self.world_size * config.grad_accumulation
        if config.batch_size % parts:
            raise UserError(
                f"trainer.batch_size: {config.batch_size} cannot be divided among "
                f"{self.world_size} ranks in {config.grad_accumulation} parts; "
                f"give a multiple of {parts}"
            )
        local = self.local_world_size
        if config.parallel == "hsdp" and self.world_size % local:
            raise UserError(
                f"trainer.parallel: hsdp needs nodes with equally many ranks, but {local} "
                f"of {self.world_size} ranks are on this one; choose fsdp, or start as many on "
                "every node"
            )

    def say(self, line: str) -> None:
        """Print a line, on the main process."""
        if self.is_main:
            print(line)

    def shard_batch(self, batch: Tensor) -> Tensor:
        """The rows of this rank. The rows of the batch must be a multiple of `world_size`."""
        return batch.chunk(self.world_size)[self.rank] if self.world_size > 1 else batch

    def mean(self, value: Tensor) -> Tensor:
        """The mean over all ranks of a tensor on the device, which it may overwrite."""
        if self.world_size > 1:
            torch.distributed.all_reduce(value)
            value = value / self.world_size
        return value

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums over all ranks, elementwise, in float64."""
        if self.world_size == 1:
            return [*values]
        sums = torch.tensor(values, dtype=torch.float64)
        torch.distributed.all_reduce(sums)
        return sums.tolist()

    def max(self, values: Sequence[int]) -> list[int]:
        """The maxima over all ranks, elementwise."""
        if self.world_size == 1:
            return [*values]
        most = torch.tensor(values)
        torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
        return most.tolist()

    def broadcast(self, value: Value) -> Value:
        """The `value` of the main process, on every rank."""
        values = [value]
        if self.world_size > 1:
            torch.distributed.broadcast_object_list(values)
        return values[0]

    def main_first(self, make: Callable[[], Value]) -> Value:
        """The result of `make`, which the main process calls before the others, so that they find
        the files that it writes."""
        if self.is_main:
            value = make()
        if self.world_size > 1:
            torch.distributed.barrier()
        return value if self.is_main else make()

    def parallelize(self, model: nn.Module, parallel: str) -> nn.Module:
        """Move `model` to the device; return the module to call in training, whose gradients are
        averaged over the ranks.

        `ddp` keeps a full model on every rank and wraps it. `fsdp` (FSDP2, `fully_shard`) shards
        every parameter of `model` in place, and gathers them block by block. `hsdp` shards it among
        the ranks of a node, and every node has it whole. The weights must be the same on all ranks.
        """
        model = model.to(self.device)
        return model if self.world_size == 1 else self.wrap(model, parallel)

    def full_copy(self, model: Model, parallel: str) -> Model:
        """What callbacks read of a model that `parallelize` gets next: if that shards it, a copy,
        which `FullCopy` fills; otherwise the model itself. The main process, which alone reads it,
        has it on its CPU; the copies of the others take no memory."""
        if self.world_size == 1 or parallel == "ddp":
            return model
        return copy.deepcopy(model).to(CPU if self.is_main else "meta")

    def wrap(self, model: nn.Module, parallel: str) -> nn.Module:
        """`parallelize` a model on the device, also with one rank."""
        check_choice("parallel", parallel, PARALLEL)
        if parallel == "ddp":
            return nn.parallel.DistributedDataParallel(model)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        shape: tuple[int, ...] = (self.world_size,)
        if parallel == "hsdp":
            shape = (self.world_size // self.local_world_size, self.local_world_size)
        mesh = init_device_mesh(
            self.device.type, shape, mesh_dim_names=("replicate", "shard")[-len(shape) :]
        )
        for module in model.modules():
            for block in module if isinstance(module, nn.ModuleList) else ():
                fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    def set_gradient_sync(self, parallel_model: nn.Module, now: bool) -> None:
        """Whether the next backward pass averages the gradients over the ranks. Once a step is
        enough: the gradients of its other parts are added up on each rank."""
        if isinstance(parallel_model, nn.parallel.DistributedDataParallel):
            parallel_model.require_backward_grad_sync = now
        elif self.world_size > 1:
            parallel_model.set_requires_gradient_sync(now)  # type: ignore[operator]


def full_tensor(tensor: Tensor) -> Tensor:
    """The tensor itself, or the full tensor of a sharded one, gathered from all ranks, which call
    this together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def local_tensor(tensor: Tensor) -> Tensor:
    """The tensor itself, or what this rank holds of a sharded one: both share their memory."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def shard_as(full: Tensor, like: Tensor) -> Tensor:
    """A full tensor, which all ranks have, sharded as the tensor `like`; itself if that is not."""
    if not hasattr(like, "device_mesh"):
        return full
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)


class FullCopy(Callback):
    """Before other callbacks look at a sharded model, gathers its parameters into `model`, the
    `Ranks.full_copy` of all ranks: at an evaluation, where a checkpoint is due or requested, and
    where an observer looks at it; and its gradients every `gradients_every` steps (0: never). Does
    nothing if `model` is the model in training.

    is_observed(step, last): whether an observer reads the model after `step` of `last` steps.
    """

    def __init__(
        self, model: nn.Module, is_observed: Callable[[int, int], bool], gradients_every: int
    ) -> None:
        self.model, self.is_observed, self.gradients_every = model, is_observed, gradients_every

    def on_start(self, trainer: Trainer) -> None:
        self._gather(trainer)

    def on_gradients(self, trainer: Trainer) -> None:
        if self.model is trainer.model:
            return
        if self.gradients_every and trainer.state.step % self.gradients_every == 0:
            for name, sharded in trainer.model.named_parameters():
                own = self.model.get_parameter(name)
                if sharded.grad is not None:
                    own.grad = full_tensor(sharded.grad).to(own.device)

    def on_step(self, trainer: Trainer) -> None:
        is_saved = trainer.checkpoint_pending or trainer.is_due(trainer.config.checkpoint_every)
        if is_saved or self.is_observed(trainer.state.step, trainer.config.max_steps):
            self._gather(trainer)

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        self._gather(trainer)

    def on_stop(self, trainer: Trainer) -> None:
        self._gather(trainer)

    @torch.no_grad()
    def _gather(self, trainer: Trainer) -> None:
        if self.model is trainer.model:
            return
        for name, sharded in trainer.model.named_parameters():
            self.model.get_parameter(name).copy_(full_tensor(sharded))


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


@contextmanager
def leaving_ranks() -> Iterator[None]:
    """End the process right after the block if it is a rank of several and nothing was raised but
    an exit.

    PyTorch's caches keep the process group after its end, and with it gloo's threads. A thread that
    frees a tensor while Python shuts down aborts the process, after a training that went well.
    """
    end = SystemExit(0)
    try:
        yield
    except SystemExit as raised:
        end = raised
    if "LOCAL_RANK" in os.environ and isinstance(end.code, int):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code)
    if end.code:
        raise end
