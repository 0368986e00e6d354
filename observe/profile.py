"""A trace of training steps, with the evaluations, checkpoints and observers between them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from common.errors import check_range
from observe.context import RunContext
from training.callback import Callback

if TYPE_CHECKING:
    from training.trainer import Trainer


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
    """Writes a Chrome trace to `profile/`; none if the run ends before the first of the steps."""

    def __init__(self, config: ProfileConfig, context: RunContext) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it reports its stages on standard error
        from torch.profiler import profile, schedule, tensorboard_trace_handler

        folder = context.folder / "profile"
        write = tensorboard_trace_handler(str(folder))

        def write_in_place(profiler: Any) -> None:
            folder.mkdir(exist_ok=True)  # not with the folder of the run, as `write` would
            write(profiler)

        # The profiler's own first step is slower, and not recorded.
        skipped = config.skip_first - 1
        self.profiler = profile(
            schedule=schedule(skip_first=skipped, wait=0, warmup=1, active=config.steps, repeat=1),
            on_trace_ready=write_in_place,
        )

    def on_start(self, trainer: Trainer) -> None:
        self.profiler.start()

    def on_step(self, trainer: Trainer) -> None:
        self.profiler.step()

    def on_end(self, trainer: Trainer) -> None:
        self.profiler.stop()
