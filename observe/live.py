"""The weights of a run at the steps of its maps, in live/ of its folder, for the live page.

model.json   what `live.page.describe` returns
names.json   by step, what each head is called, by layer and head (`HeadName`)
STEP.bin     the weights after this step, as `live.pack` lays out float16, not compressed

Each file is written whole or not at all. The steps are those of the files that are there: a resume
removes the later ones, and where all would take more than 50 MB, every other one goes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import UserError
from common.files import patiently, read_json, real_path, replace_lines, replace_text
from live.models import values_of
from live.pack import BYTES, packed_bytes
from live.page import about_run, describe, run_title
from live.texts import page_texts
from observe.attention import AttentionMaps
from observe.context import RunContext
from observe.heads import HeadNames
from tensorboard_attention.following import MODEL, NAMES, steps
from training.callback import Callback

if TYPE_CHECKING:
    from training.trainer import Trainer

log = logging.getLogger("training")

WEIGHTS = "float16"
MAX_BYTES = 50_000_000  # bytes of all steps together


class LiveWeights(Callback):
    """Writes the weights that the live page shows, whenever maps are logged. A model whose weights
    alone take more than `MAX_BYTES` has none; a step with weights that float16 cannot hold is left
    out."""

    def __init__(self, context: RunContext, maps: AttentionMaps, heads: HeadNames) -> None:
        self.context, self.maps, self.heads = context, maps, heads
        self.names: dict[str, Any] = {}  # by step, what heads are called
        self.is_described = False
        self.folder = context.folder / "live"
        self.size = BYTES[WEIGHTS] * context.model.n_parameters

    def on_start(self, trainer: Trainer) -> None:
        if self.size > MAX_BYTES:
            log.info("no weights for the live page: a step would take %d MB", self.size / 1e6)
            return
        self.folder.mkdir(exist_ok=True)
        folder = self.context.folder
        self._remove(step for step in steps(folder) if step > trainer.state.step)
        with suppress(OSError, ValueError):  # of the steps before a resume
            names = read_json(self.folder / NAMES)
            self.names = {step: names[step] for step in map(str, steps(folder)) if step in names}
        if trainer.state.step == 0:
            self._write(trainer)

    def on_finish(self, trainer: Trainer) -> None:
        if (file := self._file(trainer.state.step)).exists():
            file.touch()  # the evidence names heads anew: a page that is open asks again

    def on_step(self, trainer: Trainer) -> None:
        step, config = trainer.state.step, trainer.config
        if self.size > MAX_BYTES:
            return
        if not self.is_described:  # not before the first step, which it would delay
            data = described(self.context, self.heads.documents.where)
            replace_text(self.folder / MODEL, json.dumps(data) + "\n")
            self.is_described = True
        if self.maps.config.has_maps(step, config.max_steps, config.checkpoint_every):
            self._write(trainer)

    def _write(self, trainer: Trainer) -> None:
        """The weights and names of the step."""
        step = trainer.state.step
        with suppress(UserError):  # a diverging model's
            means = self.heads.outputs.means()
            data = packed_bytes(values_of(self.context.model, means), WEIGHTS)
            self.names[str(step)] = self.maps.names
            replace_text(self.folder / NAMES, json.dumps(self.names) + "\n")
            replace_lines(self._file(step), [data])
            while len(kept := [*steps(self.context.folder)]) * self.size > MAX_BYTES:
                self._remove(kept[-2:0:-2] or kept[:1])  # the first stays as long as possible

    def _file(self, step: int) -> Path:
        return self.folder / f"{step}.bin"

    def _remove(self, unwanted: Iterable[int]) -> None:
        for step in unwanted:
            patiently(partial(self._file(step).unlink, missing_ok=True))


def described(context: RunContext, means: str) -> dict[str, Any]:
    """What a page with weights of the run needs to know of it. means: over what they are."""
    model, dataset = context.model, context.dataset
    config, length = context.config, model.config.context_length
    last = config.trainer.max_steps
    run: dict[str, Any] = {
        "name": run_title(config.name, real_path(context.folder), config.data.name, last),
        "about": about_run(model, config.data.name),
        "means": means,
        **page_texts(context.corpus, dataset.val, dataset.tokenizer, length),
    }
    return describe(model, [], WEIGHTS, dataset.tokenizer, run)
