"""Muon on several ranks, whose matrices are sharded, replicated or both, against one rank."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, begin, finish
from training.sharing import divide

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs torchrun on Linux")

# The reference is PyTorch's Muon of the full matrices, on every rank.
STEPS = """
import sys

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from training import muon
from training.muon import Muon
from training.ranks import join_ranks, leave_ranks

SHAPES = [(8, 8), (8, 8), (24, 8), (8, 24), (24, 8), (5, 7), (2, 9), (16, 8), (8, 8)]
n_done = 0


def orthogonalise(matrices, original=muon.orthogonalise):
    global n_done
    n_done += len(matrices)
    return original(matrices)


muon.orthogonalise = orthogonalise


def check(kind, n_ranks):
    sizes = {"ddp": None, "fsdp": (n_ranks,), "hsdp": (2, n_ranks // 2)}[kind]
    mesh = sizes and init_device_mesh("cpu", sizes)
    placements = [Shard(0)] if kind == "fsdp" else [Replicate(), Shard(0)]

    def place(tensor):
        if mesh is None:
            return tensor.clone()
        return distribute_tensor(tensor, mesh, placements, src_data_rank=None)

    def full(tensor):
        return tensor.detach() if mesh is None else tensor.detach().full_tensor()

    torch.manual_seed(0)
    start = [torch.randn(shape) for shape in SHAPES]
    ours = [torch.nn.Parameter(place(each)) for each in start]
    theirs = [torch.nn.Parameter(each.clone()) for each in start]
    settings = {"weight_decay": 0.3, "momentum": 0.9}
    mine = Muon(ours, 0.04, **settings)
    reference = torch.optim.Muon(theirs, 0.02, adjust_lr_fn="match_rms_adamw", **settings)
    for step in range(5):
        for one, other in zip(ours, theirs, strict=True):
            other.grad = torch.randn(other.shape)
            one.grad = place(other.grad)
        if step == 3:  # fewer than before, and other owners
            ours[0].grad = theirs[0].grad = None
        mine.step(0.5)
        reference.step()
    for one, other, began in zip(ours, theirs, start, strict=True):
        # bfloat16 has eight bits of precision; five steps change each weight by about 0.02.
        torch.testing.assert_close(full(one), other.detach(), rtol=0, atol=1e-3)
        assert (full(one) - other).norm() < 0.01 * (other - began).norm()
    flat = torch.cat([full(one).flatten() for one in ours])
    everyone = [torch.empty_like(flat) for _ in range(n_ranks)]
    torch.distributed.all_gather(everyone, flat)
    assert all(torch.equal(each, flat) for each in everyone)


with join_ranks(torch.device("cpu")) as ranks:
    for kind in sys.argv[1:]:
        n_done = 0
        check(kind, ranks.world_size)
        sys.stdout.write(f"{kind} {n_done}\\n")
        sys.stdout.flush()
leave_ranks()
"""


@pytest.mark.long
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
def test_steps_match_torch(tmp_path: Path, n_ranks: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(STEPS, encoding="utf-8")
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={n_ranks}")
    kinds = ["ddp", "fsdp"] if n_ranks % 2 else ["ddp", "fsdp", "hsdp"]
    output = finish(begin(*torchrun, str(script), *kinds, cwd=tmp_path, PYTHONPATH=str(ROOT)))
    for kind in kinds:
        counts = [int(n) for name, n in map(str.split, output.splitlines()) if name == kind]
        assert len(counts) == n_ranks
        assert sum(counts) == 9 * 5 - 1, "each matrix is orthogonalised once, on one rank"
        assert all(counts)


def test_work_is_divided_evenly() -> None:
    layer = [(64, 64)] * 4 + [(256, 64), (64, 256)]
    owners = divide(layer * 6, 4)
    loads = [0] * 4
    for (rows, columns), owner in zip(layer * 6, owners, strict=True):
        loads[owner] += rows * columns * min(rows, columns)
    assert max(loads) == min(loads)
    assert divide([(4, 4), (8, 8)], 1) == [0, 0]
    assert sorted(divide([(4, 4), (8, 8), (4, 4)], 3)) == [0, 1, 2]
