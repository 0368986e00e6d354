"""What several observers show of the same step, computed once."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from jaxtyping import Float

from observe.context import RunContext
from observe.roles import ScoredTexts, scored_texts, target_bits


class Measured:
    """The sample and the losses of the model of a run.

    Each is computed when the first observer asks for it, and kept until a later step.
    """

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self._samples: dict[int, str] = {}
        self._bits: dict[int, Float[np.ndarray, "text token"]] = {}

    def sample(self, step: int) -> str:
        """The text of the model, which has taken `step` steps."""
        if step not in self._samples:
            self._samples = {step: self.context.write_sample()}
        return self._samples[step]

    def losses(self, step: int) -> dict[str, float]:
        """The losses of the model, which has taken `step` steps, by what the next token is: by the
        tags of `observe.roles`."""
        return self.scored_texts.by_group(self.target_bits(step))

    def target_bits(self, step: int) -> Float[np.ndarray, "text token"]:
        """The losses of all targets of `scored_texts`, in bits."""
        if step not in self._bits:
            self._bits = {step: target_bits(self.context.model, self.scored_texts)}
        return self._bits[step]

    @cached_property
    def scored_texts(self) -> ScoredTexts:
        return scored_texts(self.context)
