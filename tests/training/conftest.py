"""Small trainings, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from data.batches import UNSCORED, Batches, EvalBatches
from launch.schema import preset
from model import GPT
from store.checkpoint import Checkpoints, TrainState, load_state
from store.weights import load_weights
from tests.conftest import small_config
from training.callback import Callback
from training.checkpointing import Checkpointing
from training.config import TrainerConfig, n_tokens
from training.distributed import Ranks
from training.evaluation import Evaluation, Metrics
from training.guard import NonFiniteGuard
from training.optimizer import Optimizer, OptimizerConfig, load_optimizer
from training.signals import StopOnSignal
from training.trainer import BatchOfStep, Loss, Trainer, next_token_loss

VOCAB, CONTEXT = 13, 8
# Token 0 has one byte, every other token has two.
TOKEN_BYTES = torch.tensor([1] + [2] * (VOCAB - 1))
MUON = preset("optimizer", "muon", lr=1e-2, warmup_steps=0)
ADAMW = preset("optimizer", "adamw", lr=1e-2, warmup_steps=0, decay_fraction=1.0)
CONFIG = TrainerConfig(
    max_steps=6,
    batch_size=4,
    eval_every=2,
    eval_tokens="all",
    final_eval_tokens="all",
    checkpoint_every=3,
    keep_checkpoints=1,
    log_every=2,
    grad_accumulation=1,
    max_grad_norm=1.0,
    max_bad_steps=2,
    device="cpu",
    precision="fp32",
    compile=False,
    activation_checkpointing=False,
)


def tokens(n: int = 400) -> np.ndarray:
    return np.random.default_rng(0).integers(VOCAB, size=n).astype(np.uint16)


def make_trainer(
    folder: Path,
    config: TrainerConfig = CONFIG,
    optimizer: OptimizerConfig = ADAMW,
    ranks: Ranks | None = None,
    checkpoint: Path | None = None,
    observers: Sequence[Callback] = (),
    loss: Loss = next_token_loss,
    **choices: object,
) -> Trainer:
    """A trainer with the callbacks of train.py, from the start or from a checkpoint."""
    folder.mkdir(exist_ok=True)
    ranks = ranks or Ranks()
    torch.manual_seed(0)
    model = GPT(small_config(2, 2, 16, CONTEXT, **choices), VOCAB).to(ranks.device)
    updates, state = Optimizer(model, optimizer, max(6, config.max_steps)), TrainState()
    if checkpoint:
        load_weights(model, checkpoint)
        load_optimizer(updates, checkpoint)
        state = load_state(checkpoint)
    windows = EvalBatches(tokens(101), CONTEXT, 4)
    part = windows.part(n_tokens(config.eval_tokens))
    whole = windows.part(n_tokens(config.final_eval_tokens))
    callbacks = [
        StopOnSignal(),
        NonFiniteGuard(),
        Metrics(TOKEN_BYTES),
        *observers,
        Checkpointing(Checkpoints(folder / "checkpoints")),
        Evaluation(part, whole, TOKEN_BYTES),
    ]
    batches = Batches(tokens(), config.batch_size, CONTEXT, seed=5)
    return Trainer(config, ranks.wrap(model), updates, batches, state, 5, ranks, callbacks, loss)


def smoothed_loss(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss with smoothed labels (Szegedy et al. 2016, section 7)."""
    logits = model(inputs).flatten(0, 1)
    return nn.functional.cross_entropy(
        logits, targets.flatten(), label_smoothing=0.3, reduction="sum"
    )


def unevenly(batches: BatchOfStep) -> BatchOfStep:
    """The same, with fewer scored targets from row to row, and none in the last ones."""

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = batches(step)
        rows, places = (torch.arange(n) for n in targets.shape)
        return inputs, targets.where(places + 3 * rows[:, None] < CONTEXT, UNSCORED)

    return batch
