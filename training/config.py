"""The settings of the training loop."""

from __future__ import annotations

import math
from dataclasses import dataclass

from training.device import DEVICES, PRECISIONS
from training.ranks import PARALLEL


@dataclass
class TrainerConfig:
    """`batch_size` counts the sequences of one step; `grad_accumulation` cuts them into that many
    parts that go through the model one by one, which saves memory and changes no result but the
    draws of dropout.

    `eval_every`, `checkpoint_every` and `log_every` count steps; 0 means only at the end. After
    `max_bad_steps` steps in a row whose numbers are not finite, the run stops.
    """

    max_steps: int
    batch_size: int
    eval_every: int
    checkpoint_every: int
    keep_checkpoints: int
    log_every: int
    grad_accumulation: int
    max_grad_norm: float
    max_bad_steps: int
    device: str
    precision: str
    compile: bool
    parallel: str

    def __post_init__(self) -> None:
        for field in (
            *("max_steps", "batch_size", "log_every", "grad_accumulation"),
            *("keep_checkpoints", "max_bad_steps"),
        ):
            if not 1 <= getattr(self, field) <= 10**12:
                raise ValueError(f"{field}: {getattr(self, field)} is out of range; give 1 or more")
        for field in ("eval_every", "checkpoint_every"):
            value = getattr(self, field)
            if value < 0:
                raise ValueError(f"{field}: {value} is negative; give 0 (only at the end) or more")
        if self.batch_size % self.grad_accumulation:
            raise ValueError(
                f"grad_accumulation: {self.grad_accumulation} does not divide "
                f"batch_size={self.batch_size}; choose a divisor"
            )
        if not 0 < self.max_grad_norm < math.inf:
            raise ValueError(
                f"max_grad_norm: {self.max_grad_norm} is out of range; give a number above 0"
            )
        for field, choices in (
            ("device", DEVICES),
            ("precision", PRECISIONS),
            ("parallel", PARALLEL),
        ):
            value = getattr(self, field)
            if value not in choices:
                raise ValueError(f"{field}: {value!r} is unknown; choose {', '.join(choices)}")
