"""The weights of a run at the steps of its maps, in live/ of its folder, for the live page.

model.json   what `live.page.describe` returns
STEP.bin     the weights after this step, as `live.pack` lays out float16, not compressed

Each file is written whole or not at all. The steps are those of the files that are there: a resume
removes the later ones, and where all would take more than 50 MB, every other one goes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import UserError, pluralize, printable
from common.files import real_path, replace_lines, replace_text
from data.tales import Tales
from live.models import values_of
from live.pack import BYTES, packed_bytes
from live.page import describe
from live.texts import first_prompt, name_groups, reference_text, texts_of_tokens
from observe.context import RunContext
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

    def __init__(self, context: RunContext) -> None:
        self.context, self.maps = context, context.config.observe.attention
        self.folder = context.folder / "live"
        self.size = BYTES[WEIGHTS] * context.model.n_parameters

    def on_start(self, trainer: Trainer) -> None:
        if self.size > MAX_BYTES:
            log.info("no weights for the live page: a step would take %d MB", self.size / 1e6)
            return
        self.folder.mkdir(exist_ok=True)
        self._remove(step for step in self.steps() if step > trainer.state.step)
        replace_text(self.folder / "model.json", json.dumps(described(self.context)) + "\n")
        if trainer.state.step == 0:
            self.on_step(trainer)

    def on_step(self, trainer: Trainer) -> None:
        step, last = trainer.state.step, trainer.config.max_steps
        if self.size > MAX_BYTES or not self.maps.has_maps(step, last):
            return
        with suppress(UserError):  # a diverging model's
            data = packed_bytes(values_of(self.context.model), WEIGHTS)
            replace_lines(self._file(step), [data])
            while len(steps := self.steps()) * self.size > MAX_BYTES:
                self._remove(steps[-2:0:-2] or steps[:1])  # the first stays as long as possible

    def steps(self) -> list[int]:
        """Those whose weights are in the folder, ascending."""
        names = [file.stem for file in self.folder.glob("[0-9]*.bin")]
        return sorted(int(name) for name in names if name.isdecimal())

    def _file(self, step: int) -> Path:
        return self.folder / f"{step}.bin"

    def _remove(self, steps: Iterable[int]) -> None:
        for step in steps:
            self._file(step).unlink(missing_ok=True)


def described(context: RunContext) -> dict[str, Any]:
    """What a page with weights of the run needs to know of it."""
    model, tokenizer = context.model, context.dataset.tokenizer
    length = model.config.context_length
    if isinstance(context.corpus, Tales):
        prompt = first_prompt(context.corpus, tokenizer, length)
        reference = reference_text(context.corpus, tokenizer, length)
    else:  # reading a large corpus up to its validation split can take long
        prompt, reference = texts_of_tokens(context.dataset.val, tokenizer, length)
    run: dict[str, Any] = {
        "name": printable(context.config.name or real_path(context.folder).name),
        "about": f"{pluralize(model.config.n_layers, 'layer')} of "
        f"{pluralize(model.config.n_heads, 'head')}, "
        f"{model.n_parameters:,} parameters; data: {context.config.data.name}",
        "prompt": prompt,
        "reference": reference,
        "names": name_groups(context.corpus),
    }
    return describe(model, [], WEIGHTS, tokenizer, run)
