"""Training on two ranks against one: messages, weights, and checkpoints.

The ranks run this file as a script, and leave what they hold in files.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from store.weights import MODEL, OPTIMIZER
from tests.conftest import finish, torchrun
from tests.training.conftest import ADAMW, CONFIG, MUON, make_trainer, smoothed_loss, unevenly
from training.distributed import Ranks, join_ranks, leaving_ranks
from training.trainer import Trainer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs torchrun on Linux")

STEPS, CUT = 4, 2
PARTS = 4  # of the batch of a step, on each rank
SETTINGS = replace(
    CONFIG,
    max_steps=STEPS,
    batch_size=2 * PARTS,
    eval_every=3,
    checkpoint_every=CUT,
    keep_checkpoints=9,
    log_every=1,
    grad_accumulation=PARTS,
    max_grad_norm=0.1,
)
OPTIMIZERS = {"adamw": ADAMW, "muon": MUON}
both_optimizers = pytest.mark.parametrize("optimizer", [*OPTIMIZERS])


def trainer(folder: Path, name: str, ranks: Ranks, checkpoint: Path | None = None) -> Trainer:
    """With another loss than the model's own."""
    optimizer, loss = OPTIMIZERS[name], smoothed_loss
    made = make_trainer(
        folder, SETTINGS, optimizer, ranks, checkpoint=checkpoint, loss=loss, d_mlp=25
    )
    made.batches = unevenly(made.batches)
    return made


def held(made: Trainer) -> dict[str, dict[str, Tensor]]:
    """The weights and the optimizer's state of this rank."""
    return {
        MODEL: {name: each.detach() for name, each in made.model.named_parameters()},
        OPTIMIZER: made.optimizer.state_tensors(),
    }


def count_reductions(model: nn.parallel.DistributedDataParallel) -> list[int]:
    """The numbers of gradients of every message that reduces some, as they are sent."""
    sent: list[int] = []

    def reduce(bucket: torch.distributed.GradBucket) -> torch.futures.Future[Tensor]:
        sent.append(len(bucket.gradients()))
        assert torch.distributed.group.WORLD
        return allreduce_hook(torch.distributed.group.WORLD, bucket)

    # PyTorch does not understand the annotations of a hook that are texts.
    model.register_comm_hook(None, lambda _, bucket: reduce(bucket))
    return sent


def train_on_ranks(folder: Path, ranks: Ranks) -> None:
    """With every optimizer, from the start, and from the checkpoint in the middle of that."""
    for name in OPTIMIZERS:
        made = trainer(folder / name, name, ranks)
        assert isinstance(made.parallel, nn.parallel.DistributedDataParallel)
        sent = count_reductions(made.parallel)
        summary = made.fit()
        assert summary
        middle = folder / name / f"checkpoints/step-{CUT:06d}"
        resumed = trainer(folder / f"resumed-{name}", name, ranks, middle)
        resumed.fit()
        found = {"held": held(made), "resumed": held(resumed), "sent": sum(sent)}
        found |= {"loss": made.train_loss.item(), "val_loss": summary.val_loss}
        torch.save(found, folder / f"{name}-{ranks.rank}.pt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks leave."""
    folder = tmp_path_factory.mktemp("ranks")
    finish(torchrun(2, Path(__file__), str(folder), cwd=folder))
    return folder


def load(folder: Path, optimizer: str) -> list[dict[str, Any]]:
    """What each rank has found."""
    names = [f"{optimizer}-{rank}.pt" for rank in (0, 1)]
    return [torch.load(folder / name, weights_only=True) for name in names]


@both_optimizers
def test_two_ranks_take_the_steps_of_one(folder: Path, tmp_path: Path, optimizer: str) -> None:
    """Up to rounding: that of float32, or with Muon, which computes in bfloat16, of that. Gradients
    are sent once per step, not once for each part of the batch."""
    alone = trainer(tmp_path, optimizer, Ranks())
    summary = alone.fit()
    assert summary
    ranks = load(folder, optimizer)
    for found in ranks:
        weights, precision = held(alone)[MODEL], {"adamw": 2e-6, "muon": 5e-4}[optimizer]
        torch.testing.assert_close(found["held"][MODEL], weights, rtol=0, atol=precision)
        assert found["sent"] == STEPS * len(weights)
        assert found["loss"] == pytest.approx(alone.train_loss.item(), rel=1e-3)
        assert found["val_loss"] == pytest.approx(summary.val_loss, rel=1e-3)
    torch.testing.assert_close(ranks[0]["held"], ranks[1]["held"], rtol=0, atol=0)


@both_optimizers
def test_resuming_two_ranks_is_exact(folder: Path, optimizer: str) -> None:
    for found in load(folder, optimizer):
        torch.testing.assert_close(found["resumed"], found["held"], rtol=0, atol=0)


if __name__ == "__main__":
    with leaving_ranks(), join_ranks(torch.device("cpu")) as ranks:
        train_on_ranks(Path(sys.argv[1]), ranks)
