"""Where the time of a training step goes: a trace to look at and a table of operators.

Promises: nothing of torch.profiler is touched unless steps are to be recorded, and a recorded run
takes the same steps as any other, only more slowly. Steps are recorded, not what comes between
them: evaluations, which take more memory than a recording has, and checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from errors import check_range
from training.observer import Observer, StepMetrics, Summary

if TYPE_CHECKING:
    from torch.profiler import profile

log = logging.getLogger("training.profile")  # a part of train.log
ROWS = 30  # operators in the table


@dataclass
class ProfileConfig:
    """`steps` are recorded (0: none), after the first `skip_first` that a process takes: kernels
    are chosen and memory is found in those."""

    steps: int = 0
    skip_first: int = 20

    def __post_init__(self) -> None:
        check_range("steps", self.steps, 0, 1000)
        check_range("skip_first", self.skip_first, 1, 10**12)


class Profile(Observer):
    """Writes `steps-<first>-<last>.json`, a Chrome trace, and the same name with `.txt`, the
    operators that took the most time in themselves, into `folder`.

    After the multiples of `pauses` the run does something else: a recording ends before and begins
    a step after. What other observers do after the last recorded step is left out; what they do
    between two recorded steps counts to the second.
    """

    def __init__(
        self, folder: Path, config: ProfileConfig, device: torch.device, pauses: Sequence[int]
    ) -> None:
        self.folder, self.config = folder, config
        self.pauses = [every for every in pauses if every > 1]  # no step is free of 1
        self.sort_by = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
        self.step = 0
        self.profiler: profile | None = None

    def on_start(self, step: int) -> None:
        from torch.profiler import profile, schedule

        self.step = step
        first = step + self.config.skip_first + 1
        self.first = next(each for each in count(first) if not self._pauses(each - 1))
        self.profiler = profile(
            # The profiler's own first step is slower, and left out with those skipped.
            schedule=schedule(
                skip_first=self.first - step - 2,
                wait=0,
                warmup=1,
                active=self.config.steps,
                repeat=1,
            ),
            on_trace_ready=self._write,
        )
        self.profiler.start()

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        self.step = step
        if self.profiler:
            self.profiler.step()
            last = self.first + self.config.steps - 1
            if step >= last or (step >= self.first and self._pauses(step)):
                self._stop()

    def on_end(self, step: int, summary: Summary | None) -> None:
        if self.step < self.first:
            log.warning("no profile: the run ended before step %d", self.first)
        self._stop()

    def _pauses(self, step: int) -> bool:
        return any(step % every == 0 for every in self.pauses)

    def _stop(self) -> None:
        if self.profiler:
            self.profiler.stop()
            self.profiler = None

    def _write(self, profiler: profile) -> None:
        if self.step < self.first:  # the run ended as the recording began
            return
        self.folder.mkdir(exist_ok=True)
        trace = self.folder / f"steps-{self.first}-{self.step}.json"
        profiler.export_chrome_trace(str(trace))
        table = profiler.key_averages().table(
            self.sort_by, row_limit=ROWS, max_name_column_width=60
        )
        trace.with_suffix(".txt").write_text(table + "\n", encoding="utf-8")
        log.info("profile of steps %d to %d: %s", self.first, self.step, trace)
