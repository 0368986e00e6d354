"""Where the time of a training step goes: a trace and a table of operators.

Steps are recorded as they are taken, with the evaluations, checkpoints and observers between them.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.errors import check_range
from observe.context import RunContext
from training.callback import Callback

if TYPE_CHECKING:
    from torch.profiler import profile

    from training.trainer import Trainer

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


class Profile(Callback):
    """Writes `profile/steps-<first>-<last>.json`, a Chrome trace, and the same name with `.txt`,
    the operators with the largest self time."""

    def __init__(self, config: ProfileConfig, context: RunContext) -> None:
        self.folder, self.config = context.folder / "profile", config
        self.profiler: profile | None = None
        self.first = self.last = 0

    def on_start(self, trainer: Trainer) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it reports its stages on standard error
        from torch.profiler import profile, schedule

        self.last = trainer.state.step
        self.first = self.last + self.config.skip_first + 1
        skipped, steps = self.config.skip_first - 1, self.config.steps
        is_cuda = trainer.ranks.device.type == "cuda"
        self.sort_by = "self_device_time_total" if is_cuda else "self_cpu_time_total"
        self.profiler = profile(
            # The profiler's own first step is slower, and not recorded.
            schedule=schedule(skip_first=skipped, wait=0, warmup=1, active=steps, repeat=1),
            on_trace_ready=self._write,
        )
        self.profiler.start()

    def on_step(self, trainer: Trainer) -> None:
        self.last = trainer.state.step
        if self.profiler:
            self.profiler.step()

    def on_end(self, trainer: Trainer) -> None:
        if self.profiler:
            self.profiler.stop()
        if trainer.state.step < self.first:
            log.warning("no profile: the run ended before step %d", self.first)

    def _write(self, profiler: profile) -> None:
        self.profiler = None
        if self.last < self.first:
            return
        self.folder.mkdir(exist_ok=True)
        trace = self.folder / f"steps-{self.first}-{self.last}.json"
        profiler.export_chrome_trace(str(trace))
        table = profiler.key_averages().table(
            self.sort_by, row_limit=ROWS, max_name_column_width=60
        )
        trace.with_suffix(".txt").write_text(table + "\n", encoding="utf-8")
        log.info("profile of steps %d to %d: %s", self.first, self.last, trace)
