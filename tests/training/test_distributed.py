"""Training on two ranks against one: messages, weights, checkpoints and full copies.

The ranks run this file as a script, and leave what they hold in files, which the tests put together
themselves.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from configs.schema import preset
from data.batches import Batches, EvalBatches
from exchange.weights import read_tensors
from model import GPT
from tests.conftest import finish, small_config, torchrun
from tests.training.test_trainer import CONFIG as BASE
from tests.training.test_trainer import unevenly
from training.callback import Callback, EvalMetrics
from training.checkpoint import Checkpoints
from training.checkpointing import Checkpointing
from training.distributed import (
    FullCopy,
    Ranks,
    full_tensor,
    join_ranks,
    leaving_ranks,
    local_tensor,
)
from training.evaluation import Evaluation
from training.guard import NonFiniteGuard
from training.metrics import Metrics
from training.muon import Muon
from training.optimizer import Optimizer
from training.signals import StopOnSignal
from training.state import TrainState, load_state
from training.trainer import Trainer
from training.weights import MODEL, OPTIMIZER, load_optimizer, load_weights

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
SHAPES = [(8, 8), (8, 8), (24, 8), (8, 24), (24, 8), (5, 7), (2, 9), (16, 8), (8, 8)]

Named = dict[str, Tensor]


class Watcher(Callback):
    """Remembers the weights of a model and its gradients, which are clipped."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.at_start: Named = {}
        self.weights: dict[int, Named] = {}
        self.gradients: dict[int, Named] = {}

    def on_start(self, trainer: Trainer) -> None:
        self.at_start = self._weights()

    def on_gradients(self, trainer: Trainer) -> None:
        if trainer.state.step % CUT == 0:
            self.gradients[trainer.state.step] = {
                name: each.grad.clone()
                for name, each in self.model.named_parameters()
                if each.grad is not None
            }

    def on_step(self, trainer: Trainer) -> None:
        if trainer.state.step % CUT == 0:
            self.weights[trainer.state.step] = self._weights()

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        self.weights[trainer.state.step] = self._weights()

    def _weights(self) -> Named:
        return {name: each.detach().clone() for name, each in self.model.named_parameters()}


def trainer(
    folder: Path,
    optimizer: str,
    ranks: Ranks,
    parallel: str = "ddp",
    checkpoint: Path | None = None,
    observers: Sequence[Callback] = (),
) -> tuple[Trainer, Watcher]:
    """Made as in train.py. Neither the 13 tokens nor the 25 neurons can be halved."""
    config = replace(CONFIG, parallel=parallel)
    torch.manual_seed(0)
    model = GPT(small_config(2, 2, 16, CONTEXT, d_mlp=25), VOCAB)
    if checkpoint:
        load_weights(model, checkpoint)
    watched = ranks.full_copy(model, parallel)
    parallel_model = ranks.parallelize(model, parallel)
    updates = Optimizer(model, OPTIMIZERS[optimizer], STEPS)
    state = TrainState()
    if checkpoint:
        load_optimizer(updates, checkpoint)
        state = load_state(checkpoint)
    text = np.random.default_rng(0).integers(VOCAB, size=400).astype(np.uint16)
    validation, token_bytes = EvalBatches(text[:101], CONTEXT, 4), torch.ones(VOCAB).long()
    watcher = Watcher(watched)
    callbacks = [
        StopOnSignal(),
        NonFiniteGuard(),
        Metrics(token_bytes),
        FullCopy(watched, lambda step, _: step == CUT, CUT),
        watcher,
        *observers,
        Checkpointing(Checkpoints(folder)),
        Evaluation(validation, validation, token_bytes),
    ]
    batches = unevenly(Batches(text, config.batch_size, CONTEXT, seed=5))
    made = Trainer(config, parallel_model, updates, batches, state, 5, ranks, callbacks)
    return made, watcher


def held(made: Trainer) -> dict[str, Named]:
    """The weights and the optimizer's state, or this rank's rows of them."""
    weights: Named = dict(made.model.named_parameters())
    parts = {MODEL: weights, OPTIMIZER: made.optimizer.state_tensors()}
    return {
        part: {name: local_tensor(each.detach()).clone() for name, each in values.items()}
        for part, values in parts.items()
    }


class Hoarder(Callback):
    """Keeps what this rank holds at the start, where a run was cut, and at the end."""

    def __init__(self) -> None:
        self.held: dict[int, dict[str, Named]] = {}

    def on_start(self, trainer: Trainer) -> None:
        self.held[trainer.state.step] = held(trainer)

    def on_step(self, trainer: Trainer) -> None:
        if trainer.state.step % CUT == 0:
            self.held[trainer.state.step] = held(trainer)


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


class Reductions(TorchDispatchMode):
    """Counts the messages that reduce gradients, and leave every rank its shard."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += func.name().startswith("c10d::") and "reduce_scatter" in func.name()
        return func(*args, **(kwargs or {}))


def train_on_ranks(folder: Path, ranks: Ranks) -> None:
    """With every optimizer, under ddp and under fsdp; and, under fsdp, from the checkpoint of one
    rank on."""
    for optimizer in OPTIMIZERS:
        made, _ = trainer(folder / f"ddp-{optimizer}", optimizer, ranks)
        assert isinstance(made.parallel_model, nn.parallel.DistributedDataParallel)
        sent = count_reductions(made.parallel_model)
        made.fit()
        n_parameters = len([*made.model.parameters()])
        (folder / f"sent-{optimizer}-{ranks.rank}.json").write_text(
            json.dumps({"sent": sent, "parameters": n_parameters})
        )
        torch.save(held(made), folder / f"ddp-{optimizer}-{ranks.rank}.pt")
        hoarder = Hoarder()
        name = f"fsdp-{optimizer}"
        made, watcher = trainer(folder / name, optimizer, ranks, "fsdp", observers=[hoarder])
        with Reductions() as reductions:
            made.fit()
        (folder / f"{name}-{ranks.rank}.txt").write_text(str(reductions.count))
        torch.save(hoarder.held, folder / f"{name}-{ranks.rank}.pt")
        if ranks.is_main:
            seen = (watcher.at_start, watcher.weights, watcher.gradients)
            torch.save(seen, folder / f"{name}-seen.pt")
        alone, hoarder = folder / f"alone-{optimizer}/step-{CUT:06d}", Hoarder()
        name = f"resumed-{optimizer}"
        trainer(folder / name, optimizer, ranks, "fsdp", alone, [hoarder])[0].fit()
        torch.save(hoarder.held, folder / f"{name}-{ranks.rank}.pt")


def place_on_ranks(kind: str, n_ranks: int) -> Callable[[Tensor], Tensor]:
    """Returns what makes a copy of a full tensor as ddp, fsdp or hsdp holds it."""
    if kind == "ddp":
        return torch.clone
    mesh = init_device_mesh("cpu", (n_ranks,) if kind == "fsdp" else (2, n_ranks // 2))
    placements = [Shard(0)] if kind == "fsdp" else [Replicate(), Shard(0)]
    return lambda full: distribute_tensor(full, mesh, placements, src_data_rank=None)


def check_muon_on_ranks(n_ranks: int) -> None:
    """Muon of what the ranks hold, against PyTorch's Muon of the full matrices on every rank."""
    for kind in ("ddp", "fsdp") if n_ranks % 2 else ("ddp", "fsdp", "hsdp"):
        place = place_on_ranks(kind, n_ranks)
        torch.manual_seed(0)
        start = [torch.randn(shape) for shape in SHAPES]
        ours = [nn.Parameter(place(each)) for each in start]
        theirs = [nn.Parameter(each.clone()) for each in start]
        settings = {"weight_decay": 0.3, "momentum": 0.9}
        mine = Muon(ours, 0.04, **settings)
        reference = torch.optim.Muon(theirs, 0.02, adjust_lr_fn="match_rms_adamw", **settings)  # type: ignore[arg-type]
        for step in range(5):
            for one, other in zip(ours, theirs, strict=True):
                other.grad = torch.randn(other.shape)
                one.grad = place(other.grad)
            if step == 3:
                ours[0].grad = theirs[0].grad = None
            mine.step(0.5, torch.tensor(True))
            reference.step()
        for one, other, began in zip(ours, theirs, start, strict=True):
            # bfloat16 has eight bits of precision; five steps change each weight by about 0.02.
            found = full_tensor(one.detach())
            torch.testing.assert_close(found, other.detach(), rtol=0, atol=1e-3)
            assert (found - other).norm() < 0.01 * (other - began).norm()
            assert torch.equal(local_tensor(one.detach()), local_tensor(place(found)))
        flat = torch.cat([full_tensor(one.detach()).flatten() for one in ours])
        everyone = [torch.empty_like(flat) for _ in range(n_ranks)]
        torch.distributed.all_gather(everyone, flat)
        assert all(torch.equal(each, flat) for each in everyone)


def main(folder: Path) -> None:
    with join_ranks(torch.device("cpu")) as ranks:
        if (folder / "alone-muon").exists():
            train_on_ranks(folder, ranks)
        check_muon_on_ranks(ranks.world_size)


def launch(n_ranks: int, folder: Path) -> None:
    finish(torchrun(n_ranks, Path(__file__), str(folder), cwd=folder))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Trainer, Watcher]]:
    """Runs on one rank; `folder` below is where they are."""
    folder = tmp_path_factory.mktemp("ranks")
    made = {
        optimizer: trainer(folder / f"alone-{optimizer}", optimizer, Ranks())
        for optimizer in OPTIMIZERS
    }
    for each, _ in made.values():
        each.fit()
    return made


@pytest.fixture(scope="module")
def folder(alone: dict[str, tuple[Trainer, Watcher]]) -> Path:
    """What two ranks leave."""
    made, _ = alone["muon"]
    (saving,) = (each for each in made.callbacks if isinstance(each, Checkpointing))
    folder = saving.checkpoints.folder.parent
    launch(2, folder)
    return folder


def joined(ranks: Sequence[Named], shapes: dict[str, torch.Size]) -> Named:
    """Full tensors from the rows of every rank. What is no matrix or vector, all ranks hold."""
    for name, shape in shapes.items():
        if not shape:
            assert all(torch.equal(each[name], ranks[0][name]) for each in ranks)
    return {
        name: torch.cat([each[name] for each in ranks]) if shape else ranks[0][name]
        for name, shape in shapes.items()
    }


def full_state(folder: Path, name: str, step: int, like: Trainer) -> dict[str, Named]:
    """The weights and the optimizer's state of a sharded run after a step."""
    ranks = [torch.load(folder / f"{name}-{rank}.pt", weights_only=True)[step] for rank in (0, 1)]
    return {
        part: joined([each[part] for each in ranks], {n: t.shape for n, t in values.items()})
        for part, values in held(like).items()
    }


def assert_close(found: Named, expected: Named, optimizer: str, scale: float = 1.0) -> None:
    """Up to the rounding of float32; with Muon, which computes in bfloat16, up to that."""
    assert found.keys() == expected.keys()
    precision = scale * {"adamw": 2e-6, "muon": 5e-4}[optimizer]
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=precision)


def assert_equal(found: Named, expected: Named) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@both_optimizers
def test_ddp_reduces_gradients_once_a_step(
    alone: dict[str, tuple[Trainer, Watcher]], folder: Path, optimizer: str
) -> None:
    """Not once for each part of the batch; the weights are those of one rank nevertheless."""
    expected, ranks = held(alone[optimizer][0])[MODEL], []
    for rank in (0, 1):
        noted = json.loads((folder / f"sent-{optimizer}-{rank}.json").read_text())
        assert sum(noted["sent"]) == STEPS * noted["parameters"]
        ranks.append(torch.load(folder / f"ddp-{optimizer}-{rank}.pt", weights_only=True)[MODEL])
    assert_close(ranks[0], expected, optimizer)
    assert_equal(ranks[0], ranks[1])


@both_optimizers
def test_fsdp_reduces_gradients_once_a_step(folder: Path, optimizer: str) -> None:
    """Once for each block, and once for all other parameters."""
    for rank in (0, 1):
        assert (folder / f"fsdp-{optimizer}-{rank}.txt").read_text() == str(STEPS * (2 + 1))


@both_optimizers
def test_fsdp_trains_the_weights_of_one_rank(
    alone: dict[str, tuple[Trainer, Watcher]], folder: Path, optimizer: str
) -> None:
    made, _ = alone[optimizer]
    found = full_state(folder, f"fsdp-{optimizer}", STEPS, made)
    assert_close(found[MODEL], held(made)[MODEL], optimizer)
    rows = torch.load(folder / f"fsdp-{optimizer}-1.pt", weights_only=True)[STEPS][MODEL]
    assert len(rows["token_embedding.weight"]) == 6 and len(rows["blocks.0.mlp.up.weight"]) == 12


@both_optimizers
def test_a_checkpoint_of_fsdp_is_resumed_on_one_rank(
    alone: dict[str, tuple[Trainer, Watcher]], folder: Path, tmp_path: Path, optimizer: str
) -> None:
    straight, _ = alone[optimizer]
    checkpoint = folder / f"fsdp-{optimizer}/step-{CUT:06d}"
    made, _ = trainer(tmp_path / "run", optimizer, Ranks(), checkpoint=checkpoint)
    saved = full_state(folder, f"fsdp-{optimizer}", CUT, made)
    for part, values in held(made).items():
        assert_equal(values, saved[part])
        assert_equal(read_tensors(checkpoint / part), saved[part])
    made.fit()
    assert_close(held(made)[MODEL], held(straight)[MODEL], optimizer)


@both_optimizers
def test_a_checkpoint_of_one_rank_is_resumed_under_fsdp(
    alone: dict[str, tuple[Trainer, Watcher]], folder: Path, optimizer: str
) -> None:
    straight, _ = alone[optimizer]
    resumed = full_state(folder, f"resumed-{optimizer}", CUT, straight)
    for part, values in resumed.items():
        assert_equal(values, read_tensors(folder / f"alone-{optimizer}/step-{CUT:06d}" / part))
    ended = full_state(folder, f"resumed-{optimizer}", STEPS, straight)
    assert_close(ended[MODEL], held(straight)[MODEL], optimizer)


@both_optimizers
def test_observers_of_a_sharded_model_see_all_of_it(
    alone: dict[str, tuple[Trainer, Watcher]], folder: Path, optimizer: str
) -> None:
    """The weights at the start, where they are due and at evaluations, and clipped gradients."""
    made, watcher = alone[optimizer]
    name = f"fsdp-{optimizer}"
    at_start, weights, gradients = torch.load(folder / f"{name}-seen.pt", weights_only=True)
    for step in (0, CUT, STEPS):
        seen = weights[step] if step else at_start
        assert_equal(seen, full_state(folder, name, step, made)[MODEL])
    assert sorted(weights) == [2, 3, 4] and sorted(gradients) == [2, 4]
    for step, values in weights.items():
        assert_close(values, watcher.weights[step], optimizer)
    for step, values in gradients.items():
        norm = torch.cat([each.flatten() for each in values.values()]).norm().item()
        assert norm == pytest.approx(CONFIG.max_grad_norm, rel=1e-3)
        assert_close(values, watcher.gradients[step], optimizer, scale=CONFIG.max_grad_norm)


@pytest.mark.long
@pytest.mark.parametrize("n_ranks", [1, 3, 4])
def test_muon_on_any_number_of_ranks_matches_torch(tmp_path: Path, n_ranks: int) -> None:
    """With matrices that are whole on every rank, sharded, or both; two ranks do it above."""
    launch(n_ranks, tmp_path)


if __name__ == "__main__":
    with leaving_ranks():
        main(Path(sys.argv[1]))
