"""A run that observers can watch without any training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from configs.schema import preset
from data import Dataset, open_corpus
from data.tokenizer import fixed_tokenizer
from model import GPT
from observe.observed import ObservedRun
from tests.conftest import small_config

SETTINGS = {"data.name": "text", "tokenizer.name": "byte", "optimizer.name": "adamw", "seed": 1}


def observed_run(
    folder: Path,
    model: GPT | None = None,
    max_steps: int = 100,
    pauses: tuple[int, ...] = (),
    sample: Callable[[], str] = lambda: "",
    has_page: bool = True,
) -> ObservedRun:
    """Return a run with a byte tokenizer, whose validation split holds all bytes in order."""
    tokens = np.arange(256, dtype=np.uint16)
    return ObservedRun(
        folder=folder,
        settings=SETTINGS,
        settings_yaml="seed: 1\n",
        varied=frozenset(),
        changed=frozenset(),
        model=model or GPT(small_config(1, 1, 4, 8), 256),
        corpus=open_corpus(preset("data", "text", path=__file__)),
        dataset=Dataset(fixed_tokenizer("byte"), tokens, tokens, None, "0"),
        device=torch.device("cpu"),
        first_step=0,
        max_steps=max_steps,
        pauses=pauses,
        sample=sample,
        sample_every=10,
        is_sharded=False,
        is_main=True,
        n_devices=1,
        peak_flops=None,
        has_page=has_page,
    )
