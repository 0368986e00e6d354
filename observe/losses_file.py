"""losses.json: the loss of every token of a few texts at every evaluation, for the Attention tab.

unit     of the values
texts    the targets of each text, as labels
groups   by name: for each text, the places of its targets in this group
floor    of each text, the loss of a perfect model on its targets, in bits; null if unknown
steps    by step: "values", by group, over all texts that are scored; and "bits" of these texts
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from common.files import read_json, replace_text
from data.batches import UNSCORED
from observe.context import RunContext
from observe.measured import Measured
from tensorboard_attention.tokens import token_texts
from training.callback import Callback, EvalMetrics

if TYPE_CHECKING:
    from training.trainer import Trainer

SHOWN = 4  # texts
MAX_BYTES = 1 << 24  # bytes of the file of an earlier session


class LossesFile(Callback):
    """Replaces losses.json at each evaluation. A resume keeps the steps up to its first."""

    def __init__(self, context: RunContext, measured: Measured) -> None:
        self.measured = measured
        self.context, self.path = context, context.folder / "losses.json"
        self.steps: dict[str, Any] = {}

    def on_start(self, trainer: Trainer) -> None:
        with suppress(OSError, ValueError, TypeError, LookupError, AttributeError):
            stored = read_json(self.path, MAX_BYTES)["steps"].items()
            self.steps = {step: found for step, found in stored if int(step) <= trainer.state.step}

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        step, (scored, about) = trainer.state.step, self._texts
        bits = self.measured.target_bits(step)
        self.steps[str(step)] = {
            "values": {tag: round(value, 4) for tag, value in self.measured.losses(step).items()},
            "bits": [row[at].round(3).tolist() for row, at in zip(bits, scored, strict=False)],
        }
        replace_text(self.path, json.dumps({**about, "steps": self.steps}) + "\n")

    @cached_property
    def _texts(self) -> tuple[Bool[np.ndarray, "text token"], dict[str, Any]]:
        """Which targets of the texts that are shown are scored, and what the file says of them."""
        texts, decode = self.measured.scored_texts, self.context.dataset.tokenizer.decode_bytes
        targets = texts.targets[:SHOWN]
        scored = targets != UNSCORED

        def of_each(values: np.ndarray) -> list[np.ndarray]:
            return [row[at] for row, at in zip(values, scored, strict=False)]

        spelled = [[decode([id]) for id in row.tolist()] for row in of_each(targets)]
        return scored, {
            "unit": texts.unit,
            "texts": [token_texts(row, None) for row in spelled],
            "groups": {
                tag: [np.flatnonzero(row).tolist() for row in of_each(mask)]
                for tag, mask in texts.groups.items()
            },
            "floor": None
            if texts.floor is None
            else [row.round(3).tolist() for row in of_each(texts.floor)],
        }
