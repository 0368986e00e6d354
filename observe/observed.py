"""A run as observers see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from data import Corpus, Dataset
from model import GPT

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@dataclass(frozen=True)
class ObservedRun:
    """What observers may read.

    folder: the run's, into which observers write.
    settings: all settings by their full names; settings_yaml: the same as a file.
    first_step: completed steps at the start; pauses: the intervals, in steps, after which the loop
        evaluates or saves.
    sample: writes a text with the current model.
    is_sharded: the model is sharded over several ranks and must not be called by one alone.
    """

    folder: Path
    settings: Mapping[str, Any]
    settings_yaml: str
    model: GPT
    corpus: Corpus
    dataset: Dataset
    device: torch.device
    first_step: int
    max_steps: int
    pauses: tuple[int, ...]
    sample: Callable[[], str]
    is_sharded: bool

    @cached_property
    def events(self) -> SummaryWriter:
        """The writer of the run's TensorBoard events."""
        from torch.utils.tensorboard import SummaryWriter

        # A killed process may have written steps after its last checkpoint, which come again.
        purge_step = self.first_step + 1 if self.first_step else 0
        return SummaryWriter(str(self.folder), purge_step=purge_step)

    def validation_tokens(self, count: int) -> Int64[Tensor, " token"]:
        """The first `count` tokens of the validation split."""
        return torch.from_numpy(self.dataset.val[:count].astype(np.int64))
