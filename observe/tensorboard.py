"""Curves and text in TensorBoard: losses with the floor, learning rate, gradient norm, speed,
samples, and the settings with the result for the HParams tab."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import visible
from common.files import fsync
from observe.context import RunContext
from observe.hparams import hyperparameters, result
from observe.measured import Measured
from observe.speed import speeds
from training.callback import Callback, EvalMetrics, StepMetrics

if TYPE_CHECKING:
    from training.trainer import Trainer

WIDTH = 100  # characters of a line of text

# TensorBoard draws one chart per tag, sorted by name, and opens the first two groups of its first
# page: those of the loss. Its Custom Scalars tab combines the tags that begin with these. It draws
# the charts of runs with other layouts again.
LAYOUT = {
    "Loss": {
        "bits per byte, and the floor": ["Multiline", ["loss_bpb/train", "loss_bpb/val"]],
        "nats per token": ["Multiline", ["loss/train", "loss/val"]],
    }
}


class TensorBoard(Callback):
    """Writes scalars and the settings; samples at evaluations; and at the end the result."""

    def __init__(self, context: RunContext, measured: Measured) -> None:
        self.measured = measured
        self.writer, self.context = context.writer, context

    def on_start(self, trainer: Trainer) -> None:
        self.writer.add_custom_scalars(LAYOUT)
        files = [self.context.folder / name for name in ("resumed.yaml", "config.yaml")]
        settings = next(file for file in files if file.exists()).read_text(encoding="utf-8")
        # Named so that samples come first.
        self.writer.add_text("settings", preformatted(settings), trainer.state.step)

    def on_metrics(self, trainer: Trainer, metrics: StepMetrics) -> None:
        self._add(step_scalars(self.context, trainer, metrics), trainer.state.step)
        # Written before the checkpoint of this step, so that a kill leaves no gap in a curve.
        self.writer.flush()

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        step = trainer.state.step
        self._add(eval_scalars(self.measured, trainer, metrics), step)
        if self.context.logs_sample(step):
            self.writer.add_text("sample", preformatted(self.measured.sample(step)), step)
        self.writer.flush()

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        # Events up to a checkpoint must also survive a loss of power.
        for events in self.context.folder.glob("events.out.tfevents.*"):
            fsync(events)

    def on_end(self, trainer: Trainer) -> None:
        if trainer.summary is not None:
            values, metrics = hyperparameters(self.context), result(trainer.summary)
            self.writer.add_result(values, metrics, trainer.state.step)
        self.writer.close()

    def _add(self, scalars: dict[str, float], step: int) -> None:
        for tag, value in scalars.items():
            self.writer.add_scalar(tag, value, step)


def step_scalars(context: RunContext, trainer: Trainer, metrics: StepMetrics) -> dict[str, float]:
    """What was measured of a step, by tag."""
    speed = speeds(trainer, context.model, metrics.tokens_per_second)
    return {
        "loss/train": metrics.train_loss,
        "loss_bpb/train": metrics.train_bpb,
        "optimizer/lr": metrics.lr,
        "optimizer/grad_norm": metrics.grad_norm,
        "speed/tokens_per_second": metrics.tokens_per_second,
        **{f"speed/{name}": value for name, value in speed.items()},
    }


def eval_scalars(measured: Measured, trainer: Trainer, metrics: EvalMetrics) -> dict[str, float]:
    """What was measured in an evaluation, by tag."""
    scalars = {"loss/val": metrics.val_loss, "loss_bpb/val": metrics.val_bpb}
    if metrics.floor_bpb is not None:
        scalars["loss_bpb/val_floor"] = metrics.floor_bpb
    return {**scalars, **measured.losses(trainer.state.step)}


def preformatted(text: str) -> str:
    """Markdown that TensorBoard displays verbatim: an indented code block with wrapped lines.

    TensorBoard does not wrap code blocks itself, so long lines would be cut off. What Markdown
    takes for a line end, such as a carriage return, ends a line here, too: it would end the block.
    """
    wrapper = textwrap.TextWrapper(
        WIDTH, expand_tabs=False, replace_whitespace=False, drop_whitespace=False
    )
    lines = (part for line in text.splitlines() for part in wrapper.wrap(visible(line)) or [""])
    return "".join(f"    {line}\n" for line in lines)
