"""What the trainer tells those who watch it, and when.

The trainer calls; observers look. An observer never changes the run: it may read the model and
write its own files, and the finished weights are the same whoever watches.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StepMetrics:
    """What was measured over one training step.

    `train_loss` is in nats per token and `train_bpb` in bits per byte, both over that step's batch;
    `grad_norm` is the total norm before clipping; `tokens` counts all tokens trained on so far;
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
    """The loss over the whole validation split: nats per token and bits per byte.

    `floor_bpb` is the least bits per byte that any model can reach in expectation, where known.
    """

    val_loss: float
    val_bpb: float
    floor_bpb: float | None


@dataclass(frozen=True)
class Summary:
    """The finished run, as written to `summary.json`.

    `seconds` is wall-clock time in the loop; `bad_steps` were left out, their loss or gradient not
    being finite.
    """

    val_loss: float
    val_bpb: float
    floor_bpb: float | None
    best_val_loss: float
    best_val_bpb: float
    steps: int
    tokens: int
    seconds: float
    tokens_per_second: float
    parameters: int
    bad_steps: int


class Observer:
    """Does nothing; an observer overrides what it wants to hear."""

    def on_start(self, step: int) -> None:
        """The loop begins after `step` finished steps: 0, or where a resumed run goes on."""

    def on_gradients(self, step: int) -> None:
        """The gradients of step number `step` are there, clipped; the optimizer takes them next,
        and they are gone by `on_step`. Not called for a step that is left out."""

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        """Step number `step` is done. Metrics come every `trainer.log_every` steps, else None."""

    def on_eval(self, step: int, metrics: EvalMetrics) -> None:
        """The validation split was measured after `step` steps."""

    def on_checkpoint(self, step: int, path: Path) -> None:
        """A checkpoint is whole and on disk at `path`."""

    def on_end(self, step: int, summary: Summary | None) -> None:
        """The loop ended after `step` steps; `summary` is None if an exception ended it."""
