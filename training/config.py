"""The settings of the training loop, and what a run with them is trained and validated on."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from common.device import check_memory
from common.errors import UserError, check_choice, check_range
from data.batches import Batches, EvalBatches
from data.encoding import Dataset
from model import ModelConfig
from model.loss import PART_BYTES
from training.distributed import Ranks
from training.precision import PRECISIONS


@dataclass
class TrainerConfig:
    """The settings below `trainer`; configs/train.yaml explains them."""

    max_steps: int
    batch_size: int
    eval_every: int
    eval_tokens: str
    final_eval_tokens: str
    checkpoint_every: int
    keep_checkpoints: int
    log_every: int
    grad_accumulation: int
    max_grad_norm: float
    max_bad_steps: int
    device: str  # checked by `choose_device`
    precision: str
    compile: bool
    activation_checkpointing: bool

    def __post_init__(self) -> None:
        for name in (
            *("max_steps", "batch_size", "log_every", "grad_accumulation"),
            *("keep_checkpoints", "max_bad_steps"),
        ):
            check_range(name, getattr(self, name), 1, 10**12)
        for name in ("eval_every", "checkpoint_every"):
            check_range(name, getattr(self, name), 0, 10**12)
        if self.eval_tokens != "auto":
            check_tokens("eval_tokens", self.eval_tokens)
        check_tokens("final_eval_tokens", self.final_eval_tokens)
        if self.batch_size % self.grad_accumulation:
            raise ValueError(
                f"grad_accumulation: {self.grad_accumulation} does not divide "
                f"batch_size={self.batch_size}; choose a divisor"
            )
        check_range("max_grad_norm", self.max_grad_norm, above=0)
        check_choice("precision", self.precision, PRECISIONS)

    def check_ranks(self, world_size: int) -> None:
        """Raise UserError if so many ranks cannot share a batch, which each of them splits into
        `grad_accumulation` parts."""
        parts = world_size * self.grad_accumulation
        if self.batch_size % parts:
            raise UserError(
                f"trainer.batch_size: {self.batch_size} cannot be divided among {world_size} "
                f"ranks in {self.grad_accumulation} parts; give a multiple of {parts}"
            )

    def scored_tokens(self, tokens_per_step: int) -> int | None:
        """How many tokens an evaluation during training scores; None: all.

        `auto` keeps evaluations at about a fortieth of the time of a run, or more where steps are
        in bfloat16 and evaluations are not. A step over T tokens takes as long as an evaluation of
        3 T: a forward pass, and a backward pass twice as long. So E tokens are scored where
        E / (3 T + E) = 1/40, that is E = 3 T / 39. With
        `eval_every`, a run that is extended scores the same tokens as before, so that its `best`
        stays comparable.
        """
        if self.eval_tokens == "auto":
            return 3 * tokens_per_step * (self.eval_every or self.max_steps) // 39
        return n_tokens(self.eval_tokens)


def check_tokens(name: str, value: str) -> None:
    """Raise ValueError unless `n_tokens` knows the value."""
    if value != "all" and not re.fullmatch(r"[0-9]{1,15}", value):
        raise ValueError(f"{name}: {value!r} is neither a number of tokens nor all")


def n_tokens(setting: str) -> int | None:
    """The number of tokens that a setting allows; None for "all" and 0."""
    return None if setting == "all" else int(setting) or None


def check_training_memory(
    model: ModelConfig, trainer: TrainerConfig, vocab_size: int | None, ranks: Ranks
) -> None:
    """Raise UserError if the model cannot fit into the memory of the devices.

    Counts a lower bound for a rank: weights, gradients and one optimizer state per weight; the
    token ids of a batch; and for its share of one part of a batch, the inputs of blocks and the
    logits that are in memory at once. The text, which can take minutes, is not read yet: without a
    `vocab_size`, 256 tokens are assumed.
    """
    vocab_size = vocab_size or 256
    tokens = trainer.batch_size * model.context_length
    part = tokens / trainer.grad_accumulation / ranks.world_size
    logits = min(part * vocab_size, PART_BYTES / 4)
    activations = part * model.d_model * model.n_layers + logits
    needed = 4 * (3 * model.n_weights(vocab_size) + activations)
    needed += 16 * tokens  # inputs and targets, int64
    smaller = "trainer.batch_size or model.context_length, a larger trainer.grad_accumulation"
    check_memory(int(needed), ranks.device, "training", smaller)


@dataclass(frozen=True)
class TrainingData:
    """batches: maps the number of completed steps to the inputs and targets of the next step.
    validation: what the evaluations during training score; final_validation: what the last one
    scores. token_bytes: the number of bytes of each token.
    """

    batches: Batches
    validation: EvalBatches
    final_validation: EvalBatches
    token_bytes: Int[Tensor, " vocab"]


def training_data(
    dataset: Dataset, config: TrainerConfig, context_length: int, seed: int
) -> TrainingData:
    """What a run reads. seed: that of the order of the training windows."""
    size, length = config.batch_size, context_length
    starts, n_ending = dataset.train_starts, max(1, len(dataset.tokenizer.start_ids))
    whole = EvalBatches(dataset.val, length, size, dataset.val_starts, bits=dataset.val_bits)
    return TrainingData(
        Batches(dataset.train, size, length, seed, starts, n_ending),
        whole.part(config.scored_tokens(size * length)),
        whole.part(n_tokens(config.final_eval_tokens)),
        torch.from_numpy(dataset.tokenizer.token_bytes),
    )
