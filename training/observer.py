"""What the trainer reports to its observers, and when.

An observer never changes the run: it may read the model and write its own files, and the trained
weights do not depend on which observers there are. One that calls a sharded model, or gathers its
tensors, must be on all ranks and do so at the same events; only the main process writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StepMetrics:
    """What was measured over one training step.

    `train_loss` is in nats per token and `train_bpb` in bits per byte, both over that step's batch;
    `grad_norm` is the total norm before clipping; `tokens` counts all training tokens so far;
    `tokens_per_second` is the rate since the previous measurement.
    """

    train_loss: float
    train_bpb: float
    lr: float
    grad_norm: float
    tokens: int
    tokens_per_second: float


@dataclass(frozen=True)
class EvalMetrics:
    """The loss over `val_tokens` tokens of the validation split, in nats per token and in bits per
    byte, of which no model can have fewer than `floor_bpb` on these tokens (None: unknown)."""

    val_loss: float
    val_bpb: float
    val_tokens: int
    floor_bpb: float | None = None


@dataclass(frozen=True)
class Summary:
    """The result of a run.

    `val_loss`, `val_bpb` and `floor_bpb` are those of the last evaluation, which scored
    `val_tokens` tokens (see `EvalMetrics`); the best values are the lowest of the evaluations
    during training. `seconds` is wall-clock time in the training loop without evaluations;
    `bad_steps` were skipped because their loss or gradient was not finite.
    """

    val_loss: float
    val_bpb: float
    val_tokens: int
    best_val_loss: float
    best_val_bpb: float
    best_val_tokens: int
    steps: int
    tokens: int
    seconds: float
    tokens_per_second: float
    parameters: int
    bad_steps: int
    floor_bpb: float | None = None


class Observer:
    """Does nothing; subclasses override the methods that they need."""

    def on_start(self, step: int) -> None:
        """The loop begins after `step` completed steps: 0, or where a resumed run continues."""

    def wants_gradients(self, step: int) -> bool:
        """Whether `on_gradients` is to be called at this step, which waits for a GPU."""
        return False

    def on_gradients(self, step: int) -> None:
        """The gradients of step `step` are computed and clipped, and freed before `on_step`.

        Called for all observers if one wants it. Not called for a step that is skipped."""

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        """Step `step` is complete. Metrics come every `trainer.log_every` steps, otherwise None."""

    def on_eval_batch(self, step: int, done: int, total: int) -> None:
        """An evaluation after `step` steps has completed `done` of `total` batches."""

    def on_eval(self, step: int, metrics: EvalMetrics) -> None:
        """The validation split was evaluated after `step` steps."""

    def on_checkpoint(self, step: int, path: Path) -> None:
        """A complete checkpoint is on disk at `path`."""

    def on_end(self, step: int, summary: Summary | None) -> None:
        """The loop ended after `step` steps; `summary` is None if an exception ended it."""
