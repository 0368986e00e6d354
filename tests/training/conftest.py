"""What several test modules use."""

from __future__ import annotations

import torch
from torch import nn

from data.batches import UNSCORED
from training.config import TrainerConfig
from training.trainer import BatchOfStep

VOCAB, CONTEXT = 13, 8


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
