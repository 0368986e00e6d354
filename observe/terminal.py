"""What a person at the terminal sees: a live bar, evaluations, and a closing summary.

Where standard output is no terminal, plain lines take the bar's place.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from training.observer import EvalMetrics, Observer, StepMetrics, Summary

# Seconds between two drawings of the bar, or two plain lines.
LIVE_INTERVAL, PLAIN_INTERVAL = 1.0, 5.0


class Terminal(Observer):
    """Shows the run at `path` as it goes to `max_steps`; `sample()` writes the text for the end.

    `has_events`: whether there is something for TensorBoard to show.
    """

    def __init__(
        self,
        path: Path,
        max_steps: int,
        sample: Callable[[], str],
        title: str,
        has_events: bool,
        console: Console | None = None,
    ) -> None:
        self.path, self.max_steps, self.sample, self.title = path, max_steps, sample, title
        self.watch = f"tensorboard --logdir {shlex.quote(str(path.parent))}" if has_events else ""
        self.console = console or Console(
            highlight=False, markup=False, emoji=False, soft_wrap=True
        )
        self.live = self.console.is_terminal
        self.last_line, self.measured = time.monotonic(), ""
        self.bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[measured]}", markup=False),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self.console,
            # Rich's own thread would draw ten times a second, and make both of a laptop's cores
            # wait for it: a twelfth of the run.
            auto_refresh=False,
        )
        self.task = self.bar.add_task("", total=max_steps, measured="")

    def on_start(self, step: int) -> None:
        self.console.print(self.title)
        self.console.print(f"To watch: {self.watch}\n" if self.watch else "")
        self.bar.update(self.task, completed=step)
        if self.live:
            self.bar.start()

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        due = time.monotonic() - self.last_line >= (LIVE_INTERVAL if self.live else PLAIN_INTERVAL)
        if metrics is not None:
            self.measured = (
                f"loss {metrics.train_loss:.3f}  {metrics.train_bpb:.3f} bpb  "
                f"{metrics.tokens_per_second:,.0f} tokens/s"
            )
        elif not (self.live and due):
            return
        self.bar.update(self.task, completed=step, measured=self.measured)
        if not due:
            return
        self.last_line = time.monotonic()
        if self.live:
            self.bar.refresh()
        else:
            left = self.bar.tasks[0].time_remaining
            left_text = f"  {left:.0f} s left" if left is not None else ""
            self.console.print(f"step {step}/{self.max_steps}  {self.measured}{left_text}")

    def on_eval(self, step: int, metrics: EvalMetrics) -> None:
        self.console.print(
            f"step {step}/{self.max_steps}  validation: {metrics.val_loss:.3f} nats per token, "
            f"{against_floor(metrics.val_bpb, metrics.floor_bpb)}"
        )

    def on_end(self, step: int, summary: Summary | None) -> None:
        self.bar.update(self.task, completed=step)
        self.bar.stop()  # ends the line where there is no bar
        if self.live:
            self.console.print()
        if summary is None:
            return
        result = against_floor(summary.val_bpb, summary.floor_bpb)
        self.console.print(
            f"Validation  {result}\n"
            f"Trained     {summary.steps:,} steps, {summary.tokens:,} tokens "
            f"in {summary.seconds:.0f} s ({summary.tokens_per_second:,.0f} tokens/s)\n"
            f"Run         {self.path}\n\n"
            "It writes:\n"
        )
        self.console.print(Text(self.sample().strip("\n")), soft_wrap=False)
        self.console.print(
            f"\nNext:\n  python sample.py run={shlex.quote(str(self.path))}\n"
            + (f"  {self.watch}\n" if self.watch else "")
        )


def against_floor(bpb: float, floor_bpb: float | None) -> str:
    """Bits per byte, and how far above the least possible."""
    if floor_bpb is None:
        return f"{bpb:.4f} bits per byte"
    return f"{bpb:.4f} bits per byte, {bpb / floor_bpb - 1:.1%} above the floor of {floor_bpb:.4f}"
