"""What a run is trained and validated on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from data.batches import Batches, EvalBatches
from data.tokens import Dataset, document_starts
from training.config import n_tokens


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


def training_data(dataset: Dataset, config: Any) -> TrainingData:
    """What a run with the settings `config` (its `trainer`, `model`, `data` and `seed`) reads."""
    size, length = config.trainer.batch_size, config.model.context_length
    document_end = config.data.document_end
    find_documents = partial(
        document_starts, tokenizer=dataset.tokenizer, document_end=document_end
    )
    starts = find_documents(dataset.val)
    whole = EvalBatches(dataset.val, length, size, starts, bits=dataset.val_bits)
    return TrainingData(
        Batches(dataset.train, size, length, config.seed, find_documents if document_end else None),
        whole.part(config.trainer.scored_tokens(size * length)),
        whole.part(n_tokens(config.trainer.final_eval_tokens)),
        torch.from_numpy(dataset.tokenizer.token_bytes),
    )
