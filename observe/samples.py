"""What is sampled while a model learns."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class SamplesConfig:
    """The sample at every evaluation and at the end. An empty prompt starts a new document."""

    prompt: str
    max_new_tokens: int
    temperature: float
    top_p: float | None
    seed: int

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(
                f"max_new_tokens: {self.max_new_tokens} is out of range; give 1 or more"
            )
        if not 0 <= self.temperature < math.inf:
            raise ValueError(
                f"temperature: {self.temperature} is out of range; give 0 (greedy) or more"
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(
                f"top_p: {self.top_p} is no probability above 0; give up to 1, or null"
            )
