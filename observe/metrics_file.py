"""metrics.jsonl: every measurement as one line of JSON, for your own plots."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from observe.context import RunContext
from observe.json_lines import JsonLines
from observe.roles import Outputs
from training.callback import EvalMetrics, StepMetrics

if TYPE_CHECKING:
    from training.trainer import Trainer


class MetricsFile(JsonLines):
    """Appends a line for each measurement: `step`, and what was measured at it.

    A resume removes the lines after its first step, since those steps are repeated, and an
    evaluation of that step, if it is.
    """

    def __init__(self, context: RunContext, outputs: Outputs) -> None:
        self.outputs = outputs
        super().__init__(context.folder / "metrics.jsonl")

    def on_start(self, trainer: Trainer) -> None:
        step, evaluated = trainer.state.step, trainer.state.last_evaluation
        self.keep(lambda line: line["step"] <= (evaluated if "val_loss" in line else step))

    def on_metrics(self, trainer: Trainer, metrics: StepMetrics) -> None:
        self.append({"step": trainer.state.step, **asdict(metrics)})

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        step, seconds = trainer.state.step, trainer.state.seconds
        losses = self.outputs.losses(step)
        self.append({"step": step, **asdict(metrics), "seconds": seconds, **losses})
