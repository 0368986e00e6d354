"""metrics.jsonl: every measurement as one line of JSON, for your own plots."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.files import fsync, replace_lines
from observe.context import RunContext
from observe.measured import Measured
from training.callback import Callback, EvalMetrics, StepMetrics

if TYPE_CHECKING:
    from training.trainer import Trainer


class MetricsFile(Callback):
    """Appends a line for each measurement: `step`, and what was measured at it.

    A resume removes the lines after its first step, since those steps are repeated, a repeated
    evaluation of that step, and lines that are incomplete because the process or the disk failed.
    """

    def __init__(self, context: RunContext, measured: Measured) -> None:
        self.measured = measured
        self.path = context.folder / "metrics.jsonl"

    def on_start(self, trainer: Trainer) -> None:
        self.first_step = step = trainer.state.step
        self._keep(lambda line: line["step"] <= step)

    def on_metrics(self, trainer: Trainer, metrics: StepMetrics) -> None:
        self._append(trainer.state.step, asdict(metrics))

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        step = trainer.state.step
        if step == self.first_step:
            self._keep(lambda line: line["step"] < step or "val_loss" not in line)
        seconds = trainer.state.seconds
        losses = self.measured.losses(step)
        self._append(step, {**asdict(metrics), "seconds": seconds, **losses})

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        fsync(self.path)

    def _keep(self, is_kept: Callable[[Any], bool]) -> None:
        """Remove all other lines."""
        self.path.touch()
        # A file that a failing disk damaged may be no text.
        lines = self.path.read_bytes().splitlines(keepends=True)
        replace_lines(self.path, (line for line in lines if _holds(is_kept, line)))

    def _append(self, step: int, values: dict[str, float | None]) -> None:
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")


def _holds(condition: Callable[[Any], bool], line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and condition(json.loads(line))
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
