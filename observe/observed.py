"""A run as observers see it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from data import CORPORA, Corpus, Dataset
from data.arrays import Tokens
from data.tokens import document_starts
from errors import UserError
from model import GPT
from observe.cost import Cost

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@dataclass(frozen=True)
class ObservedRun:
    """What observers may read.

    folder: the run's, into which observers write.
    settings: all settings by their full names; settings_yaml: the same as a file; varied: the names
        of those, or of their groups, that the command line sets, and that differ within a sweep;
        changed: the names of those with other values than the default ones.
    first_step: completed steps at the start; pauses: the intervals, in steps, after which the loop
        evaluates or saves.
    sample: writes a text with the current model; sample_every: the steps between samples that are
        logged, 0 for only the last.
    is_sharded: the model is sharded over several ranks, which must call it together.
    is_main: this is the main process, which alone writes and prints.
    n_devices: how many train the model together, one per rank; peak_flops: the floating-point
        operations per second that one can do at most, None if unknown.
    has_page: look.py can write a page in which the model runs.
    cost: the time that goes into looking at the model.
    """

    folder: Path
    settings: Mapping[str, Any]
    settings_yaml: str
    varied: frozenset[str]
    changed: frozenset[str]
    model: GPT
    corpus: Corpus
    dataset: Dataset
    device: torch.device
    first_step: int
    max_steps: int
    pauses: tuple[int, ...]
    sample: Callable[[], str]
    sample_every: int
    is_sharded: bool
    is_main: bool
    n_devices: int
    peak_flops: float | None
    has_page: bool
    cost: Cost = field(default_factory=Cost)

    @property
    def writer(self) -> SummaryWriter | None:
        """`events` on the main process; None on the others."""
        return self.events if self.is_main else None

    def logs_sample(self, step: int) -> bool:
        """Whether an evaluation after `step` steps logs a sample."""
        every = self.sample_every
        return step == self.max_steps or (every > 0 and step % every == 0)

    @cached_property
    def events(self) -> SummaryWriter:
        """The writer of the run's TensorBoard events."""
        # A killed process may have written steps after its last checkpoint, which come again.
        return open_events(self.folder, purge_step=self.first_step + 1 if self.first_step else 0)

    def document_starts(self, tokens: Tokens) -> Int64[np.ndarray, " document"] | None:
        """The first token of every document in tokens of the corpus that begin with one; None if it
        is not divided into documents."""
        end = CORPORA[self.settings["data.name"]].config.document_end
        return document_starts(tokens, self.dataset.tokenizer, end)

    def validation_tokens(self, count: int) -> Int64[Tensor, " token"]:
        """The first `count` tokens of the validation split."""
        return torch.from_numpy(self.dataset.val[:count].astype(np.int64))


def open_events(folder: Path, purge_step: int | None = None) -> SummaryWriter:
    """A writer of TensorBoard events to a new file, whose name sorts after the others in `folder`.

    TensorBoard reads the files of a run in this order. A name begins with the time, which can be
    earlier than that of an older file if the clock was set back. Raises UserError for a folder that
    TensorBoard cannot write to.
    """
    from tensorboard.summary.writer import event_file_writer
    from torch.utils.tensorboard import SummaryWriter

    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{folder}: TensorBoard needs a folder whose name is UTF-8; rename it, or use a locale "
            "such as LC_ALL=C.UTF-8"
        ) from None
    found = (
        re.match(r"events\.out\.tfevents\.(\d+)", path.name) for path in folder.glob("events.*")
    )
    newest = max((int(name[1]) for name in found if name), default=0)
    # The first time that the writer asks for is that of its name.
    times = chain([max(time.time(), newest + 1)], iter(time.time, None))
    with patch.object(event_file_writer, "time", SimpleNamespace(time=times.__next__)):
        return SummaryWriter(str(folder), purge_step=purge_step)
