"""The models whose weights are in a page."""

from __future__ import annotations

import numpy as np
import torch

from model import GPT, ModelConfig


def initial_model(config: ModelConfig, vocab_size: int, seed: int) -> GPT:
    """The model with which train.py begins a run of this seed; sets torch's random state."""
    torch.manual_seed(seed)
    return GPT(config, vocab_size).eval()


def values_of(model: GPT) -> dict[str, np.ndarray]:
    """Its parameters by name; a matrix that is used twice (tied embeddings) comes once."""
    return {name: parameter.detach().cpu().numpy() for name, parameter in model.named_parameters()}
