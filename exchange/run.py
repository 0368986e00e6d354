"""A run from a folder of Hugging Face transformers.

Promises: the run is the same model, weight for weight, or there is none; nothing that the folder
contains is executed; the run appears whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
import yaml
from torch import Tensor

from common.errors import UserError, pluralize
from common.files import fsync, replace_folder
from data.tokenizer import IMPORTED, Tokenizer, TokenizerConfig, fixed_tokenizer
from exchange.config import read_config
from exchange.tokenizer import read_own_tokenizer, special_ids
from exchange.weights import read_weights
from model import ModelConfig
from training.checkpoint import Checkpoints
from training.state import TrainState
from training.weights import MODEL, OPTIMIZER


def to_run(
    source: Path, target: Path, name: str, dtype: str | None, tokenizer: TokenizerConfig | None
) -> str:
    """Write the run `target`; returns what to tell the user. `name` is how the user calls `source`;
    `tokenizer` is for a folder that has none. Raises UserError."""
    try:
        model, vocab_size = read_config(source)
        weights = read_weights(source, model, vocab_size, dtype)
        found = read_tokenizer(source, vocab_size, tokenizer)
        write_run(target, name, model, found, weights)
    except ValueError as error:
        raise UserError(f"source: {source}: {error}") from error
    return (
        f"Wrote {target}: {pluralize(model.n_layers, 'layer')} of "
        f"{pluralize(model.n_heads, 'head')}, "
        f"{sum(map(torch.numel, weights.values())):,} parameters, {found.vocab_size:,} tokens."
    )


def read_tokenizer(folder: Path, vocab_size: int, config: TokenizerConfig | None) -> Tokenizer:
    """The tokenizer of a folder, or the configured one if it has none. Raises ValueError."""
    if (folder / "tokenizer.json").exists():
        if config is not None:
            raise ValueError("tokenizer: the folder has its own; leave tokenizer out")
        return read_own_tokenizer(folder, vocab_size)
    if (folder / "tokenizer.model").exists():
        raise ValueError(
            "tokenizer.json: is missing, and tokenizer.model is not read; write it with "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    if config is None:
        raise ValueError(
            "tokenizer.json: is missing; save it with "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...), or give tokenizer=byte or "
            "another one whose ids the model was trained with"
        )
    if config.name == "bpe":
        raise ValueError(
            "tokenizer: bpe is trained on a corpus, which a folder does not have; "
            "give tokenizer=byte or another fixed one"
        )
    try:
        found = fixed_tokenizer(config.name, vocab_size)
    except ValueError:
        raise ValueError(
            f"tokenizer: {config.name} has more tokens than the {vocab_size:,} of the model; give "
            "the one that it was trained with"
        ) from None
    return found.with_special_ids(*special_ids(folder, None, found.special_tokens))


def write_run(
    target: Path,
    name: str,
    model: ModelConfig,
    tokenizer: Tokenizer,
    weights: Mapping[str, Tensor],
) -> None:
    """Write a run whose only checkpoint is at step 0. It has no corpus: `data` is null."""
    settings = {
        "converted_from": name,
        "data": None,
        "tokenizer": {"name": IMPORTED, "vocab_size": None},
        "model": asdict(model),
    }
    with replace_folder(target, is_new=True) as folder:
        (folder / "tokenizer").mkdir()
        tokenizer.save(folder / "tokenizer")
        tensors: dict[str, Mapping[str, Tensor]] = {MODEL: weights, OPTIMIZER: {}}
        Checkpoints(folder / "checkpoints").save(tensors, TrainState(best_step=0), keep=1)
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        (folder / "config.yaml").write_text(text, encoding="utf-8")
        for path in folder.rglob("*"):
            fsync(path)
