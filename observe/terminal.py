"""The output in the terminal: a live progress bar, evaluations, and a closing summary.

If standard output is not a terminal, plain lines replace the bar.
"""

from __future__ import annotations

import gzip
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from common.console import SteadyConsole
from common.errors import printable
from data.encoding import Dataset
from data.tales import Tales
from observe.context import RunContext
from observe.roles import Outputs
from training.callback import Callback, EvalMetrics, StepMetrics

if TYPE_CHECKING:
    from training.trainer import Trainer

# Seconds between two updates of the bar, or two plain lines.
LIVE_INTERVAL, PLAIN_INTERVAL = 1.0, 5.0
GZIPPED = 500_000  # tokens
MANY = 20  # times that a text is read


class Terminal(Callback):
    """Shows the progress of a run, and at its end the result and a sample; of a run in a sweep,
    only the bar, or a line on standard error that it has begun, and one line with the result."""

    def __init__(
        self, context: RunContext, outputs: Outputs, console: RunConsole | None = None
    ) -> None:
        self.context, self.outputs = context, outputs
        settings = context.config
        self.max_steps = settings.trainer.max_steps
        logdir = shlex.quote(str(context.folder.parent))
        has_tensorboard = settings.observe.tensorboard and not context.is_in_sweep
        self.watch = f"tensorboard --logdir {logdir}" if has_tensorboard else ""
        self.console = console or RunConsole(
            highlight=False, markup=False, emoji=False, soft_wrap=True
        )
        self.live = self.console.is_terminal
        self.last_line, self.shown = time.monotonic(), ""
        self.bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[measured]}", markup=False),
            console=self.console,
            # Rich's own thread would draw ten times a second, which on two cores makes PyTorch's
            # threads wait: a twelfth of the run.
            auto_refresh=False,
        )
        self.task = self.bar.add_task("", total=self.max_steps, measured="")

    def on_start(self, trainer: Trainer) -> None:
        settings, model = self.context.config, self.context.model
        if self.context.is_in_sweep:
            if not self.live:
                begun = f"training {self.context.folder.name}, {self.max_steps:,} steps"
                print(printable(begun), file=sys.stderr, flush=True)
        else:
            self.console.print(
                f"{settings.data.name}, "
                f"{settings.tokenizer.name} of {model.vocab_size:,} tokens, "
                f"model of {model.n_parameters:,} parameters, {settings.optimizer.name}\n"
                f"{trainer.ranks.device.type}, {trainer.precision.name}: {trainer.precision.reason}"
            )
            n_read = self.max_steps * trainer.config.batch_size * model.config.context_length
            times = n_read / len(self.context.dataset.train)
            if times > MANY and not isinstance(self.context.corpus, Tales):  # whose floor is known
                self.console.print(
                    f"The text is read {times:,.0f} times; docs/text.md shows after how many "
                    "readings a model learns one by heart"
                )
            if trainer.config.compile:
                self.console.print("compiling the model: the first step takes longer")
            if self.watch:
                self.console.print(f"To watch: {self.watch}")
            self.console.print()
        self.bar.update(self.task, completed=trainer.state.step)
        if self.live:
            self.bar.start()

    def on_metrics(self, trainer: Trainer, metrics: StepMetrics) -> None:
        loss, speed = metrics.train_bpb, metrics.tokens_per_second
        self.shown = f"loss {loss:.3f} bits per byte  {speed:,.0f} tokens/s"

    def on_step(self, trainer: Trainer) -> None:
        is_measured = trainer.is_due(trainer.config.log_every)
        if not (self.live or is_measured) or not self._is_due():  # before what takes time
            return
        self.bar.update(self.task, completed=trainer.state.step)
        left = self.bar.tasks[0].time_remaining
        shown = self.shown + ("" if left is None else f"  {duration(float(left))} left")
        self._show(trainer.state.step, shown)

    def on_eval_batch(self, trainer: Trainer, done: int, total: int) -> None:
        if done == 1:
            self.evaluation_began = time.monotonic()
            return
        if not self._is_due():
            return
        seconds = (time.monotonic() - self.evaluation_began) / (done - 1) * (total - done)
        self._show(
            trainer.state.step, f"evaluating {done:,}/{total:,} batches, {duration(seconds)} left"
        )

    def _is_due(self) -> bool:
        """Whether the last update or plain line was not just now."""
        interval = LIVE_INTERVAL if self.live else PLAIN_INTERVAL
        return time.monotonic() - self.last_line >= interval

    def _show(self, step: int, measured: str) -> None:
        """Update the bar, or print a plain line."""
        self.last_line = time.monotonic()
        self.bar.update(self.task, measured=measured)
        if self.live:
            self.bar.refresh()
        elif not self.context.is_in_sweep:
            self.console.print(f"step {step}/{self.max_steps}  {measured}")

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        if self.context.is_in_sweep:
            return
        self.console.print(
            f"step {trainer.state.step}/{self.max_steps}  validation: "
            f"{against_floor(metrics.val_bpb, metrics.floor_bpb)}"
        )

    def on_end(self, trainer: Trainer) -> None:
        self.bar.update(self.task, completed=trainer.state.step)
        if self.live or not self.context.is_in_sweep:
            self.bar.stop()  # also ends the line if there is no bar
        if self.live:
            self.console.print()

    def on_result(self, trainer: Trainer) -> None:
        step, summary = trainer.state.step, trainer.summary
        assert summary
        result = against_floor(summary.val_bpb, summary.floor_bpb)
        if summary.floor_bpb is None:
            result += f" (gzip -9 of the text: {gzip_bpb(self.context.dataset):.2f})"
        if self.context.is_in_sweep:
            seconds = duration(summary.seconds)
            self.console.print(f"  {result}, in {seconds}: {self.context.folder}")
            return
        self.console.print(
            f"Validation  {result} ({summary.val_tokens:,} tokens)\n"
            f"Trained     {summary.steps:,} steps, {summary.tokens:,} tokens "
            f"in {duration(summary.seconds)} ({summary.tokens_per_second:,.0f} tokens/s)\n"
            f"Run         {self.context.folder}\n\nSample:\n"
        )
        sample = self.outputs.sample(step).strip("\n")
        self.console.print(sample or "(empty: the model ends the text at once)", soft_wrap=False)
        folder = self.context.folder
        run, page = (shlex.quote(str(path)) for path in (folder, f"{folder.name}.html"))
        touch = f"  python look.py run={run} html={page}\n"
        self.console.print(
            f"\nNext:\n  python sample.py run={run}\n"
            + (touch if self.context.has_page else "")
            + (f"  {self.watch}\n" if self.watch else "")
        )


class RunConsole(SteadyConsole):
    """On a terminal, prints `printable` text, whose lines Rich wraps; else the exact text."""

    def print(self, *objects: Any, **options: Any) -> None:
        if self.is_terminal or not all(isinstance(each, str) for each in objects):
            objects = tuple(printable(o) if isinstance(o, str) else o for o in objects)
            super().print(*objects, **options)
        else:
            print(*objects, file=self.file)
        self.file.flush()


def gzip_bpb(dataset: Dataset) -> float:
    """What `gzip -9` makes of the training text, in bits per byte: of its beginning, which says
    the same, since gzip looks back over 32 kB only."""
    text = dataset.tokenizer.decode_bytes(dataset.train[:GZIPPED].tolist())
    return 8 * len(gzip.compress(text, 9)) / len(text)


def duration(seconds: float) -> str:
    """7.2 s, 43 s, 2m 23s or 1h 05m."""
    if seconds < 59.5:
        return f"{seconds:.{0 if seconds >= 9.95 else 1}f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}h {minutes:02}m"


def against_floor(bpb: float, floor_bpb: float | None) -> str:
    """Bits per byte, and the distance from the floor, if that is known."""
    if floor_bpb is None:
        return f"{bpb:.4f} bits per byte"
    times = bpb / floor_bpb
    distance = f"{times:.1f} times" if times > 2 else f"{times - 1:.1%} above"
    return f"{bpb:.4f} bits per byte, {distance} the floor of {floor_bpb:.4f}"
