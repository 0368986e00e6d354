"""metrics.jsonl: every measurement as one line of JSON, for people who plot for themselves."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from training.observer import EvalMetrics, Observer, StepMetrics


class MetricsFile(Observer):
    """Appends a line for each measurement: `step` and what was measured at it.

    On a resume the lines after the resumed step are dropped, since those steps are taken again,
    and so are lines that a dying process or disk left broken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_start(self, step: int) -> None:
        if self.path.exists():
            lines = self.path.read_text(errors="replace").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and _is_before(step, line)]
            temporary = self.path.with_suffix(".tmp")
            with temporary.open("w") as file:
                file.writelines(kept)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        if metrics is not None:
            self._append(step, asdict(metrics))

    def on_eval(self, step: int, metrics: EvalMetrics) -> None:
        self._append(step, asdict(metrics))

    def on_checkpoint(self, step: int, path: Path) -> None:
        with self.path.open("a") as file:
            os.fsync(file.fileno())

    def _append(self, step: int, values: dict[str, float | None]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")


def _is_before(step: int, line: str) -> bool:
    try:
        return json.loads(line)["step"] <= step
    except (ValueError, KeyError, TypeError):
        return False
