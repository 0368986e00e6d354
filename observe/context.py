"""What observers read of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.corpus import Corpus
from data.encoding import Dataset
from model import GPT


@dataclass
class RunContext:
    """What observers read of a run.

    folder: the run's, into which observers write.
    config: its settings, a `launch.schema.TrainConfig`, whose file imports this one.
    varied: the names of settings, or of groups, that the command line sets, and that differ within
        a sweep.
    model: the model in training.
    write_sample: writes a text with `model`.
    first_step: completed steps at the start.
    has_page: look.py can write a page in which the model runs.
    is_in_sweep: the run is one of many, and prints little: not how to watch it and what to do next.
    """

    folder: Path
    config: Any
    varied: frozenset[str]
    model: GPT
    corpus: Corpus | None
    dataset: Dataset
    write_sample: Callable[[], str]
    first_step: int
    has_page: bool
    is_in_sweep: bool = False
