"""What is sampled while a model learns."""

from __future__ import annotations

from dataclasses import dataclass

from errors import check_range
from model import check_sampling

MAX_NEW_TOKENS = 10**6


@dataclass
class SamplesConfig:
    """The sample at every evaluation and at the end. An empty prompt starts a new document."""

    prompt: str
    max_new_tokens: int
    temperature: float
    top_p: float | None
    seed: int

    def __post_init__(self) -> None:
        check_range("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        check_range("seed", self.seed, 0, 2**63 - 1)
        check_sampling(self.temperature, None, self.top_p)
