"""The settings of the training loop."""

from __future__ import annotations

from dataclasses import dataclass

from errors import check_choice, check_range
from training.device import PRECISIONS
from training.ranks import PARALLEL


@dataclass
class TrainerConfig:
    """`batch_size` is the number of sequences of one step, over all ranks. `grad_accumulation`
    splits them into that many parts, which saves memory and changes only the draws of dropout.

    `eval_every`, `checkpoint_every` and `log_every` are intervals in steps; for the first two, 0
    means only at the end. The run stops after `max_bad_steps` consecutive steps whose loss or
    gradient is not finite.
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
    device: str  # checked by `choose_device`
    precision: str
    compile: bool
    parallel: str

    def __post_init__(self) -> None:
        for name in (
            *("max_steps", "batch_size", "log_every", "grad_accumulation"),
            *("keep_checkpoints", "max_bad_steps"),
        ):
            check_range(name, getattr(self, name), 1, 10**12)
        for name in ("eval_every", "checkpoint_every"):
            check_range(name, getattr(self, name), 0, 10**12)
        if self.batch_size % self.grad_accumulation:
            raise ValueError(
                f"grad_accumulation: {self.grad_accumulation} does not divide "
                f"batch_size={self.batch_size}; choose a divisor"
            )
        check_range("max_grad_norm", self.max_grad_norm, above=0)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("parallel", self.parallel, PARALLEL)
