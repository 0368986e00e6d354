"""A run that observers can watch, at any step, with and without training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from common.settings import build
from data.batches import Batches
from data.corpora import open_corpus
from data.encoding import Dataset
from data.tokenizer import fixed_tokenizer
from launch.cli import VERSION, plain_values
from launch.schema import TrainConfig
from model import GPT
from observe.attention import AttentionConfig, AttentionMaps
from observe.context import RunContext
from observe.tensorboard import open_events
from store.checkpoint import TrainState
from store.run import Summary
from tests.conftest import ROOT, small_config
from training.callback import Callback, StepMetrics
from training.distributed import Ranks
from training.optimizer import Optimizer
from training.trainer import Trainer

TOKENIZER = fixed_tokenizer("byte")
DEFAULTS = ("data=text", f"data.path={__file__}", "tokenizer=byte", "optimizer=adamw")


@cache
def composed(*overrides: str) -> DictConfig:
    """The settings of `train.py DEFAULTS overrides`."""
    with initialize_config_dir(str(ROOT / "configs"), **VERSION):
        return compose("train", [*DEFAULTS, *overrides])


def random_model(*sizes: int, std: float = 0.5, **choices: Any) -> GPT:
    """A model of bytes with the sizes of `small_config`, in which every parameter is random."""
    torch.manual_seed(0)
    model = GPT(small_config(*sizes, **choices), 256)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=std)
    return model


def dataset_of(texts: Sequence[str], is_divided: bool = True) -> Dataset:
    """Both splits are these documents, or one text."""
    tokens = np.frombuffer("".join(texts).encode(), np.uint8).astype(np.uint16)
    starts = np.cumsum([0, *(len(text.encode()) for text in texts[:-1])])
    index = starts if is_divided else None
    return Dataset(TOKENIZER, tokens, tokens, None, "0", None, index, index)


def run_context(
    folder: Path,
    *overrides: str,
    model: GPT | None = None,
    write_sample: Callable[[], str] = lambda: "",
    varied: frozenset[str] = frozenset(),
    has_page: bool = True,
    is_in_sweep: bool = False,
) -> RunContext:
    """A run with these settings and a byte tokenizer, whose splits hold all bytes in order."""
    config = build(TrainConfig, plain_values(composed(*overrides)))
    tokens = np.arange(256, dtype=np.uint16)
    return RunContext(
        folder=folder,
        config=config,
        varied=varied,
        model=model or GPT(small_config(1, 1, 4, 8), 256),
        corpus=open_corpus(config.data),
        dataset=Dataset(TOKENIZER, tokens, tokens, None, "0"),
        write_sample=write_sample,
        first_step=0,
        has_page=has_page,
        is_in_sweep=is_in_sweep,
    )


def trainer_at(
    context: RunContext, step: int, *callbacks: Callback, ranks: Ranks | None = None
) -> Trainer:
    """The trainer of a run after `step` steps, which trains the model of `context`."""
    config, model = cast(TrainConfig, context.config), context.model
    length = model.config.context_length
    return Trainer(
        config.trainer,
        model,
        Optimizer(model, config.optimizer, config.trainer.max_steps),
        Batches(context.dataset.train, config.trainer.batch_size, length, config.seed),
        TrainState(step=step),
        config.seed,
        ranks,
        callbacks,
    )


def log_maps(context: RunContext, every: str, steps: Iterable[int]) -> AttentionMaps:
    """The observer of a run that has seen these steps, and logged maps at some."""
    with open_events(context.folder) as writer:
        maps = AttentionMaps(AttentionConfig(every, "a text " * 9), context, writer)
        for step in steps:
            (maps.on_step if step else maps.on_start)(trainer_at(context, step))
    return maps


METRICS = StepMetrics(2.0, 0.7, 0.01, 1.0, 640, 3200.0)
SUMMARY = Summary(1.5, 0.55, 5000, 1.4, 0.52, 5000, 1000, 64000, 20.0, 3200.0, 935296, 0, 0.5)
