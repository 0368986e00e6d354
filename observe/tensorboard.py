"""Curves and text in TensorBoard: losses against the floor, rates, norms, speed, samples, and the
settings beside the result, so that its HParams tab compares runs."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torch.utils.tensorboard.summary import hparams

from observe.summaries import add_scalars
from training.observer import EvalMetrics, Observer, StepMetrics, Summary

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

HParam = bool | int | float | str

WIDTH = 100  # characters of a line of text

# TensorBoard draws one chart a tag; its Custom Scalars tab puts these together in one.
LAYOUT = {
    "Loss": {
        "bits per byte, and the floor": ["Multiline", ["bpb/train", "bpb/val", "bpb/floor"]],
        "nats per token": ["Multiline", ["loss/train", "loss/val"]],
    }
}


class TensorBoard(Observer):
    """Writes scalars, the config as text, and what `sample()` returns at every evaluation.

    `hparams` are the settings that may differ between runs, by name.
    """

    def __init__(
        self,
        writer: SummaryWriter,
        config: str,
        hparams: dict[str, HParam],
        floor_bpb: float | None,
        sample: Callable[[], str],
    ) -> None:
        self.writer, self.config, self.hparams = writer, config, hparams
        self.floor_bpb, self.sample = floor_bpb, sample

    def on_start(self, step: int) -> None:
        self.writer.add_custom_scalars(LAYOUT)
        self.writer.add_text("config", preformatted(self.config), step)

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        if metrics is None:
            return
        scalars = {
            "loss/train": metrics.train_loss,
            "bpb/train": metrics.train_bpb,
            "optimizer/lr": metrics.lr,
            "optimizer/grad_norm": metrics.grad_norm,
            "speed/tokens_per_second": metrics.tokens_per_second,
        }
        if self.floor_bpb is not None:
            scalars["bpb/floor"] = self.floor_bpb
        add_scalars(self.writer, scalars, step)
        # With the system before a checkpoint of this step is: a kill leaves no gap in a curve.
        self.writer.flush()

    def on_eval(self, step: int, metrics: EvalMetrics) -> None:
        add_scalars(self.writer, {"loss/val": metrics.val_loss, "bpb/val": metrics.val_bpb}, step)
        self.writer.add_text("sample", preformatted(self.sample()), step)
        self.writer.flush()

    def on_checkpoint(self, step: int, path: Path) -> None:
        # And on the disk: nor does a loss of power.
        for events in Path(self.writer.log_dir).glob("events.out.tfevents.*"):
            with events.open("rb") as file:
                os.fsync(file.fileno())

    def on_end(self, step: int, summary: Summary | None) -> None:
        if summary is not None:
            # Not `add_hparams`: it would make a folder, and so a run, of its own.
            for each in hparams(self.hparams, {"bpb/val": summary.val_bpb}):
                self.writer._get_file_writer().add_summary(each, step)
        self.writer.close()


def preformatted(text: str) -> str:
    """Markdown that TensorBoard shows letter by letter: an indented code block, long lines broken.

    TensorBoard does not wrap such a block, so a long line would run out of sight.
    """
    wrapper = textwrap.TextWrapper(
        WIDTH, expand_tabs=False, replace_whitespace=False, drop_whitespace=False
    )
    lines = (part for line in text.split("\n") for part in wrapper.wrap(line) or [""])
    return "".join(f"    {line}\n" for line in lines)
