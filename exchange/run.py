"""A run from a folder of Hugging Face transformers.

Promises: the run is the same model, weight for weight, or there is none; nothing that the folder
contains is executed; the run appears whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from common.errors import as_mistake, pluralize
from common.files import fsync, new_folder
from data.tokenizer import IMPORTED
from exchange.config import read_config
from exchange.tokenizer import read_tokenizer
from exchange.weights import read_weights
from store.checkpoint import Checkpoints, TrainState
from store.settings import settings_yaml
from store.weights import MODEL, OPTIMIZER


def to_run(source: Path, target: Path, name: str, dtype: str | None) -> str:
    """Write the run `target`, whose only checkpoint is at step 0, and which has no corpus: `data`
    is null. Returns what to tell the user. `name` is how the user calls `source`. Raises
    UserError."""
    with as_mistake(f"source: {source}: "):
        model, vocab_size = read_config(source)
        weights = read_weights(source, model, vocab_size, dtype)
        tokenizer = read_tokenizer(source, vocab_size)
        settings = {
            "converted_from": name,
            "data": None,
            "tokenizer": {"name": IMPORTED, "vocab_size": None},
            "model": asdict(model),
        }
        with new_folder(target) as folder:
            (folder / "tokenizer").mkdir()
            tokenizer.save(folder / "tokenizer")
            tensors: dict[str, Mapping[str, Tensor]] = {MODEL: weights, OPTIMIZER: {}}
            Checkpoints(folder / "checkpoints").save(tensors, TrainState(best_step=0), keep=1)
            (folder / "config.yaml").write_text(settings_yaml(settings), encoding="utf-8")
            for path in folder.rglob("*"):
                fsync(path)
    return (
        f"Wrote {target}: {pluralize(model.n_layers, 'layer')} of "
        f"{pluralize(model.n_heads, 'head')}, "
        f"{sum(map(torch.numel, weights.values())):,} parameters, {tokenizer.vocab_size:,} tokens."
    )
