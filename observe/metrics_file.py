"""metrics.jsonl: every measurement as one line of JSON, for your own plots."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from files import fsync, replace_text
from training.observer import EvalMetrics, Observer, StepMetrics

if TYPE_CHECKING:
    from observe.observed import ObservedRun


class MetricsFile(Observer):
    """Appends a line for each measurement: `step`, and what was measured at it.

    A resume removes the lines after its first step, since those steps are repeated, and lines that
    are incomplete because the process or the disk failed.
    """

    def __init__(self, observed: ObservedRun) -> None:
        self.path = observed.folder / "metrics.jsonl"
        self.floor_bpb = observed.dataset.floor_bpb

    def on_start(self, step: int) -> None:
        self.path.touch()
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and _is_before(step, line)]
        replace_text(self.path, "".join(kept))

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        if metrics is not None:
            self._append(step, asdict(metrics))

    def on_eval(self, step: int, metrics: EvalMetrics) -> None:
        self._append(step, {**asdict(metrics), "floor_bpb": self.floor_bpb})

    def on_checkpoint(self, step: int, path: Path) -> None:
        fsync(self.path)

    def _append(self, step: int, values: dict[str, float | None]) -> None:
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")


def _is_before(step: int, line: str) -> bool:
    try:
        return json.loads(line)["step"] <= step
    except (ValueError, KeyError, TypeError):
        return False
