"""The time of an update by Muon on several ranks that share the work, and that of one in which
every rank orthogonalises every matrix:

    torchrun --nproc_per_node=4 benchmarks/muon_ranks.py [model=nano] [repeats=20]

Prints one line for each way to hold the matrices, with the ratio of the median times. The two take
turns, so that other load on the machine affects both.
"""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from configs.schema import preset
from model import GPT, full_tensor
from training.muon import Muon, orthogonalise
from training.ranks import join_ranks, leave_ranks
from training.sharing import local


class Everything(Muon):
    """Every rank gathers and orthogonalises all matrices."""

    @torch.no_grad()
    def step(self, scale: float, is_finite: torch.Tensor | None = None) -> None:
        stacks: dict[tuple[int, ...], list] = {}
        for parameter, state in self.state.items():
            assert parameter.grad is not None
            average = state["momentum_buffer"].lerp_(parameter.grad, 1 - self.momentum)
            update = full_tensor(parameter.grad.lerp(average, self.momentum))
            parameter.mul_(1 - self.lr * scale * self.weight_decay)
            wide = update.mT if update.shape[0] > update.shape[1] else update
            stacks.setdefault(wide.shape, []).append((parameter, wide))
        for (_, columns), pairs in stacks.items():
            updates = orthogonalise(torch.stack([wide for _, wide in pairs]))
            for (parameter, _), update in zip(pairs, updates, strict=True):
                whole = update if update.shape == parameter.shape else update.mT
                if hasattr(parameter, "device_mesh"):
                    mesh, placements = parameter.device_mesh, parameter.placements
                    whole = local(distribute_tensor(whole, mesh, placements, src_data_rank=None))
                step = self.lr * scale * 0.2 * math.sqrt(columns)
                local(parameter).add_(whole, alpha=-step)


def seconds(rule: Muon) -> float:
    dist.barrier()
    began = time.perf_counter()
    rule.step(1.0)
    dist.barrier()
    return time.perf_counter() - began


def main() -> None:
    settings = dict(each.split("=") for each in sys.argv[1:])
    name, repeats = settings.get("model", "nano"), int(settings.get("repeats", "20"))
    with join_ranks(torch.device("cpu")) as ranks:
        n = ranks.world_size
        with torch.device("meta"):
            blocks = GPT(preset("model", name), 300).blocks
        shapes = [each.shape for each in blocks.parameters() if each.ndim == 2]
        grids = {"ddp": None, "fsdp": (n,), **({} if n % 2 else {"hsdp": (2, n // 2)})}
        for kind, sizes in grids.items():
            rules = [make(rule, shapes, sizes) for rule in (Muon, Everything)]
            for rule in rules:
                seconds(rule)
            times = [[seconds(rule) for rule in rules] for _ in range(repeats)]
            shared, everything = (median(each) for each in zip(*times, strict=True))
            if ranks.is_main:
                load = os.getloadavg()[0]
                print(
                    f"{kind} on {n} ranks, {name}: shared {shared * 1e3:.1f} ms, every rank "
                    f"everything {everything * 1e3:.1f} ms: {shared / everything:.2f} "
                    f"(load {load:.1f})",
                    flush=True,
                )


def make(rule: type[Muon], shapes: list[torch.Size], sizes: tuple[int, ...] | None) -> Muon:
    """The rule for random matrices with random gradients, held as a mesh of `sizes` does."""
    mesh = sizes and init_device_mesh("cpu", sizes)
    torch.manual_seed(0)
    parameters = []
    for shape in shapes:
        tensors = [torch.randn(shape) for _ in range(2)]
        if mesh:
            placements = [Replicate()] * (mesh.ndim - 1) + [Shard(0)]
            tensors = [
                distribute_tensor(each, mesh, placements, src_data_rank=None) for each in tensors
            ]
        parameters.append(torch.nn.Parameter(tensors[0]))
        parameters[-1].grad = tensors[1]
    return rule(parameters, 0.01, 0.1, 0.95)


if __name__ == "__main__":
    main()
    leave_ranks()
