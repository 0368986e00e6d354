"""Curves and text in TensorBoard: losses with the floor, learning rate, gradient norm, speed,
samples, and the settings with the result for the HParams tab."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from files import fsync
from observe.hparams import hparams_events, result
from observe.speed import speeds
from observe.summaries import add_scalars
from training.observer import EvalMetrics, Observer, StepMetrics, Summary

if TYPE_CHECKING:
    from observe.observed import ObservedRun

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


class TensorBoard(Observer):
    """Writes scalars and the settings; samples at evaluations; and at the end the result."""

    def __init__(self, observed: ObservedRun) -> None:
        self.writer, self.observed = observed.events, observed

    def on_start(self, step: int) -> None:
        self.writer.add_custom_scalars(LAYOUT)
        self.writer.add_text("config", preformatted(self.observed.settings_yaml), step)

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        if metrics is None:
            return
        scalars = {
            "loss/train": metrics.train_loss,
            "loss_bpb/train": metrics.train_bpb,
            "optimizer/lr": metrics.lr,
            "optimizer/grad_norm": metrics.grad_norm,
            "speed/tokens_per_second": metrics.tokens_per_second,
        }
        for name, value in speeds(self.observed, metrics.tokens_per_second).items():
            scalars[f"speed/{name}"] = value
        add_scalars(self.writer, scalars, step)
        # Written before the checkpoint of this step, so that a kill leaves no gap in a curve.
        self.writer.flush()

    def on_eval(self, step: int, metrics: EvalMetrics) -> None:
        scalars = {"loss/val": metrics.val_loss, "loss_bpb/val": metrics.val_bpb}
        if metrics.floor_bpb is not None:
            scalars["loss_bpb/val_floor"] = metrics.floor_bpb
        add_scalars(self.writer, scalars, step)
        if self.observed.logs_sample(step):
            self.writer.add_text("sample", preformatted(self.observed.sample()), step)
        self.writer.flush()

    def on_checkpoint(self, step: int, path: Path) -> None:
        # Events up to a checkpoint must also survive a loss of power.
        for events in self.observed.folder.glob("events.out.tfevents.*"):
            fsync(events)

    def on_end(self, step: int, summary: Summary | None) -> None:
        if summary is not None:
            add_scalars(self.writer, result(summary), step)
            # Not `add_hparams`, which would create a folder, and so a run, of its own, and writes
            # booleans as numbers.
            self.writer._get_file_writer().add_summary(hparams_events(self.observed), step)
        self.writer.close()


def preformatted(text: str) -> str:
    """Markdown that TensorBoard displays verbatim: an indented code block with wrapped lines.

    TensorBoard does not wrap code blocks itself, so long lines would be cut off.
    """
    wrapper = textwrap.TextWrapper(
        WIDTH, expand_tabs=False, replace_whitespace=False, drop_whitespace=False
    )
    lines = (part for line in text.split("\n") for part in wrapper.wrap(line) or [""])
    return "".join(f"    {line}\n" for line in lines)
