"""What a run is trained and validated on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor

from data.batches import Batches, EvalBatches
from data.tokens import Dataset, document_starts
from training.config import n_tokens

if TYPE_CHECKING:
    from training.config import TrainerConfig


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
    dataset: Dataset, trainer: TrainerConfig, context_length: int, seed: int, document_end: Any
) -> TrainingData:
    """Batches of windows of `context_length` tokens; `document_end` is as in `document_starts`."""
    tokenizer, size = dataset.tokenizer, trainer.batch_size
    find_starts = partial(document_starts, tokenizer=tokenizer, document_end=document_end)
    starts = find_starts(dataset.val)
    whole = EvalBatches(dataset.val, context_length, size, starts, bits=dataset.val_bits)
    return TrainingData(
        Batches(dataset.train, size, context_length, seed, find_starts if document_end else None),
        whole.part(trainer.scored_tokens(size * context_length)),
        whole.part(n_tokens(trainer.final_eval_tokens)),
        torch.from_numpy(tokenizer.token_bytes),
    )
