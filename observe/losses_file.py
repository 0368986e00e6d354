"""losses.jsonl: the loss of every token of a few texts at every evaluation, for the Attention tab.

The format is in `tensorboard_attention.losses`: "values" are over all texts that are scored, the
rest is of the first few.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from data.batches import UNSCORED
from observe.context import RunContext
from observe.json_lines import JsonLines
from observe.roles import Outputs
from tensorboard_attention.tokens import token_texts
from training.callback import EvalMetrics

if TYPE_CHECKING:
    from training.trainer import Trainer

SHOWN = 4  # texts


class LossesFile(JsonLines):
    """Appends a line at each evaluation. A resume removes those of evaluations that come again."""

    def __init__(self, context: RunContext, outputs: Outputs) -> None:
        self.outputs, self.context = outputs, context
        super().__init__(context.folder / "losses.jsonl")

    def on_start(self, trainer: Trainer) -> None:
        last = trainer.state.last_evaluation
        self.has_texts = False

        def is_kept(line: dict[str, Any]) -> bool:
            self.has_texts |= "texts" in line
            return "texts" in line or line["step"] <= last

        self.keep(is_kept)

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        step, (scored, about) = trainer.state.step, self._texts
        bits = self.outputs.target_bits(step)
        found = {
            "step": step,
            "values": {tag: round(value, 4) for tag, value in self.outputs.losses(step).items()},
            "bits": [row[at].round(3).tolist() for row, at in zip(bits, scored, strict=False)],
        }
        self.append(*([] if self.has_texts else [about]), found)
        self.has_texts = True

    @cached_property
    def _texts(self) -> tuple[Bool[np.ndarray, "text token"], dict[str, Any]]:
        """Which targets of the texts that are shown are scored, and what the file says of them."""
        texts, decode = self.outputs.scored_texts, self.context.dataset.tokenizer.decode_bytes
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
