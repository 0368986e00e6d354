"""The models whose weights are in a page, and what replaces a part that is switched off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from data.documents import Documents
from data.encoding import Dataset
from data.tokenizer import Tokenizer
from live.texts import spare_text
from model import GPT, ModelConfig
from model.hooks import Batch, Part


def initial_model(config: ModelConfig, vocab_size: int, seed: int) -> GPT:
    """The model with which train.py begins a run of this seed; sets torch's random state."""
    torch.manual_seed(seed)
    return GPT(config, vocab_size).eval()


def mean_batches(
    dataset: Dataset | None, tokenizer: Tokenizer, context_length: int
) -> tuple[Iterable[Batch], str]:
    """What the means of parts are over, for `mean_outputs`, and what it is in words: the documents
    over which *need* is measured. Without a dataset, a tale."""
    if dataset is not None:
        documents = Documents(dataset, context_length)
        return documents.batches, documents.where
    ids = tokenizer.encode_document(spare_text(tokenizer, context_length))[:context_length]
    tokens = torch.tensor([ids])
    return [(tokens, tokens)], f"a tale ({len(ids)} tokens)"


def values_of(model: GPT, means: Mapping[Part, Tensor]) -> dict[str, np.ndarray]:
    """Its parameters by name, and last the means of its heads and of its MLPs, a row for each,
    layer by layer. A matrix that is used twice (tied embeddings) comes once.

    means: as `mean_outputs` returns them.
    """
    values: dict[str, Tensor] = dict(model.named_parameters())
    for name, kind in (("means.heads", tuple), ("means.mlps", str)):
        values[name] = torch.stack([mean for part, mean in means.items() if isinstance(part, kind)])
    return {name: value.detach().float().cpu().numpy() for name, value in values.items()}
