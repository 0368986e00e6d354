"""Training on two ranks against one: messages, weights, and checkpoints.

The ranks run this file as a script, and leave what they hold in files.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from data.batches import Batches, EvalBatches
from launch.schema import preset
from model import GPT
from store.checkpoint import Checkpoints, TrainState, load_state
from store.weights import MODEL, OPTIMIZER, load_weights
from tests.conftest import finish, small_config, torchrun
from tests.training.conftest import CONFIG as BASE
from tests.training.conftest import smoothed_loss, unevenly
from training.checkpointing import Checkpointing
from training.distributed import Ranks, join_ranks, leaving_ranks
from training.evaluation import Evaluation, Metrics
from training.guard import NonFiniteGuard
from training.optimizer import Optimizer, load_optimizer
from training.signals import StopOnSignal
from training.trainer import Trainer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs torchrun on Linux")

VOCAB, CONTEXT, STEPS, CUT = 13, 8, 4, 2
PARTS = 4  # of the batch of a step, on each rank
CONFIG = replace(
    BASE,
    max_steps=STEPS,
    batch_size=2 * PARTS,
    eval_every=3,
    checkpoint_every=CUT,
    keep_checkpoints=9,
    log_every=1,
    grad_accumulation=PARTS,
    max_grad_norm=0.1,
)
OPTIMIZERS = {
    "adamw": preset("optimizer", "adamw", lr=1e-2, warmup_steps=0),
    "muon": preset("optimizer", "muon", warmup_steps=0),
}
both_optimizers = pytest.mark.parametrize("optimizer", [*OPTIMIZERS])

Named = dict[str, Tensor]


def trainer(folder: Path, optimizer: str, ranks: Ranks, checkpoint: Path | None = None) -> Trainer:
    """Made as in train.py, with another loss than its own."""
    torch.manual_seed(0)
    model = GPT(small_config(2, 2, 16, CONTEXT, d_mlp=25), VOCAB)
    updates, state = Optimizer(model, OPTIMIZERS[optimizer], STEPS), TrainState()
    if checkpoint:
        load_weights(model, checkpoint)
        load_optimizer(updates, checkpoint)
        state = load_state(checkpoint)
    text = np.random.default_rng(0).integers(VOCAB, size=400).astype(np.uint16)
    validation, token_bytes = EvalBatches(text[:101], CONTEXT, 4), torch.ones(VOCAB).long()
    callbacks = [
        StopOnSignal(),
        NonFiniteGuard(),
        Metrics(token_bytes),
        Checkpointing(Checkpoints(folder)),
        Evaluation(validation, validation, token_bytes),
    ]
    batches = unevenly(Batches(text, CONFIG.batch_size, CONTEXT, seed=5))
    parallel = ranks.wrap(model)
    return Trainer(CONFIG, parallel, updates, batches, state, 5, ranks, callbacks, smoothed_loss)


def held(made: Trainer) -> dict[str, Named]:
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
    for optimizer in OPTIMIZERS:
        name = f"{optimizer}-{ranks.rank}"
        made = trainer(folder / optimizer, optimizer, ranks)
        assert isinstance(made.parallel, nn.parallel.DistributedDataParallel)
        sent = count_reductions(made.parallel)
        summary = made.fit()
        assert summary
        torch.save(held(made), folder / f"{name}.pt")
        noted = {"sent": sent, "loss": made.train_loss.item(), "val_loss": summary.val_loss}
        (folder / f"{name}.json").write_text(json.dumps(noted))
        middle = folder / optimizer / f"step-{CUT:06d}"
        resumed = trainer(folder / f"resumed-{optimizer}", optimizer, ranks, middle)
        resumed.fit()
        torch.save(held(resumed), folder / f"resumed-{name}.pt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks leave."""
    folder = tmp_path_factory.mktemp("ranks")
    finish(torchrun(2, Path(__file__), str(folder), cwd=folder))
    return folder


def load(folder: Path, name: str) -> dict[str, Named]:
    return torch.load(folder / f"{name}.pt", weights_only=True)


def assert_equal(found: dict[str, Named], expected: dict[str, Named]) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@both_optimizers
def test_two_ranks_take_the_steps_of_one(folder: Path, tmp_path: Path, optimizer: str) -> None:
    """Up to rounding: that of float32, or with Muon, which computes in bfloat16, of that. Gradients
    are sent once per step, not once for each part of the batch."""
    alone = trainer(tmp_path, optimizer, Ranks())
    summary = alone.fit()
    assert summary
    for rank in (0, 1):
        name = f"{optimizer}-{rank}"
        found = load(folder, name)[MODEL]
        precision = {"adamw": 2e-6, "muon": 5e-4}[optimizer]
        torch.testing.assert_close(found, held(alone)[MODEL], rtol=0, atol=precision)
        noted = json.loads((folder / f"{name}.json").read_text())
        assert sum(noted["sent"]) == STEPS * len(found)
        assert noted["loss"] == pytest.approx(alone.train_loss.item(), rel=1e-3)
        assert noted["val_loss"] == pytest.approx(summary.val_loss, rel=1e-3)
    assert_equal(load(folder, f"{optimizer}-0"), load(folder, f"{optimizer}-1"))


@both_optimizers
def test_resuming_two_ranks_is_exact(folder: Path, optimizer: str) -> None:
    for rank in (0, 1):
        straight = load(folder, f"{optimizer}-{rank}")
        assert_equal(load(folder, f"resumed-{optimizer}-{rank}"), straight)


if __name__ == "__main__":
    with leaving_ranks(), join_ranks(torch.device("cpu")) as ranks:
        train_on_ranks(Path(sys.argv[1]), ranks)
