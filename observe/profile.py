"""Where the time of a training step goes: a trace and a table of operators.

Promises: a recorded run takes the same steps as any other, only more slowly. Only steps are
recorded, not the evaluations and checkpoints between them: a recorded evaluation would not fit into
memory.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from errors import check_range
from training.observer import Observer, StepMetrics, Summary

if TYPE_CHECKING:
    from torch.profiler import profile

    from observe.observed import ObservedRun

log = logging.getLogger("training.profile")  # a part of train.log
ROWS = 30  # operators in the table


@dataclass
class ProfileConfig:
    """`steps` are recorded (0: none), after `skip_first` warm-up steps of the process, in which
    kernels are selected and memory is allocated."""

    steps: int
    skip_first: int

    def __post_init__(self) -> None:
        check_range("steps", self.steps, 0, 1000)
        check_range("skip_first", self.skip_first, 1, 10**12)


class Profile(Observer):
    """Writes `profile/steps-<first>-<last>.json`, a Chrome trace, and the same name with `.txt`,
    the operators with the largest self time.

    A recording begins one step after a pause of the loop (an evaluation or a checkpoint) and ends
    before the next. Work of other observers between two recorded steps is counted with the second
    one; their work after the last step is not recorded.
    """

    def __init__(self, config: ProfileConfig, observed: ObservedRun) -> None:
        self.folder, self.config = observed.folder / "profile", config
        self.pauses = [every for every in observed.pauses if every > 1]  # 1 leaves no step
        is_cuda = observed.device.type == "cuda"
        self.sort_by = "self_device_time_total" if is_cuda else "self_cpu_time_total"
        self.step = 0
        self.profiler: profile | None = None

    def on_start(self, step: int) -> None:
        from torch.profiler import profile, schedule

        self.step = step
        first = step + self.config.skip_first + 1
        self.first = next(each for each in count(first) if not self._pauses(each - 1))
        self.profiler = profile(
            # The profiler's own first step is slower, and skipped as well.
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
