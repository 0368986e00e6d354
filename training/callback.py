"""What can follow a run: the events of the training loop, and what is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StepMetrics:
    """The measurements of one step.

    Losses are those of the step's batch, per token in nats and per byte in bits: of what the
    trainer's `loss` returns. `lr` is the learning rate of `optimizer.lr`; `grad_norm` the norm of
    the gradients before clipping; `tokens` how many were trained on so far; `tokens_per_second` the
    rate since the last measurement.
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
    byte, and the floor of the same tokens (None: unknown)."""

    val_loss: float
    val_bpb: float
    val_tokens: int
    floor_bpb: float | None = None


class Callback:
    """Follows a run. Does nothing; subclasses override the methods that they need.

    `trainer` is the `training.trainer.Trainer` that calls the methods, which imports this file.
    `trainer.state` says how far the run has come. Every event is sent to all callbacks in the order
    of `trainer.callbacks`, on every rank; only `on_checkpoint` on the main process alone.
    """

    def on_start(self, trainer: Any) -> None:
        """The loop begins: after 0 completed steps, or where a resumed run continues."""

    def on_step(self, trainer: Any) -> None:
        """Step `state.step` is complete. Its clipped gradients, which may not be finite, are there
        until the next one begins."""

    def on_metrics(self, trainer: Any, metrics: StepMetrics) -> None:
        """A step was measured: one of every `trainer.log_every`."""

    def on_eval_batch(self, trainer: Any, done: int, total: int) -> None:
        """An evaluation has completed `done` of `total` batches."""

    def on_eval(self, trainer: Any, metrics: EvalMetrics) -> None:
        """The validation split was evaluated after step `state.step`."""

    def on_before_checkpoint(self, trainer: Any) -> None:
        """Step `state.step` is complete, and a checkpoint of it is due."""

    def on_checkpoint(self, trainer: Any, path: Path) -> None:
        """A complete checkpoint of step `state.step` is on disk at `path`."""

    def on_stop(self, trainer: Any) -> None:
        """The loop ends because a signal to stop was received, often before the last step."""

    def on_finish(self, trainer: Any) -> None:
        """All steps are complete, also where a resumed run had none left."""

    def on_end(self, trainer: Any) -> None:
        """The loop ended; `trainer.summary` is None if the run is not finished, or if something
        failed: what is held is then only let go."""

    def on_result(self, trainer: Any) -> None:
        """The run is finished, and everything is written, also its result."""
