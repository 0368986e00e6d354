"""Curves and text in TensorBoard: losses with the floor, learning rate, gradient norm, speed,
samples, the settings with the result for the HParams tab, and the token embeddings for the
Projector."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.summary.writer import event_file_writer
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from common.errors import UserError, printable, token_label
from common.files import fsync, naming, remove
from common.settings import flat
from observe.context import RunContext
from observe.roles import Outputs
from store.run import Run, Summary
from tensorboard_attention.records import read_event, record_end
from training.callback import Callback, EvalMetrics, StepMetrics

if TYPE_CHECKING:
    from training.trainer import Trainer

# Beginnings of names of what is trained and how; no paths, and nothing of what is saved, measured
# or shown.
TRAINED = (
    *("seed", "model.", "tokenizer.", "optimizer.", "data.name", "data.n_bytes"),
    *("trainer.max_steps", "trainer.batch_size", "trainer.grad_accumulation"),
    *("trainer.max_grad_norm", "trainer.precision", "trainer.compile"),
)
# Shown of every run, after what the command line sets. More columns would hide the result.
ALWAYS = ("data.name", "seed")

# The tags of measurements by their names in metrics.jsonl, where others have their tags for names.
TAGS = {
    "train_bpb": "loss/bits_per_byte_train",
    "lr": "loss/learning_rate",
    "grad_norm": "training/grad_norm",
    "tokens_per_second": "training/tokens_per_second",
    "val_bpb": "loss/bits_per_byte_val",
    "floor_bpb": "loss/bits_per_byte_val_floor",
}

WIDTH = 100  # characters of a line of text
MAX_EMBEDDINGS = 10_000  # the browser computes their layout, which takes long for more

# TensorBoard draws one chart per tag, sorted by name, and opens the first groups of its first page:
# all others are named so that they come after that of the loss. Its Custom Scalars tab combines the
# tags that begin with these. It draws the charts of runs with other layouts again.
LAYOUT = {
    "Loss": {"bits per byte": ["Multiline", ["loss/bits_per_byte"]]},
}


class TensorBoard(Callback):
    """Writes scalars and the settings; samples at evaluations; and at the end the result and the
    embeddings."""

    def __init__(self, context: RunContext, outputs: Outputs, writer: SummaryWriter) -> None:
        self.outputs = outputs
        self.writer, self.context = writer, context

    def on_start(self, trainer: Trainer) -> None:
        self.writer.add_custom_scalars(LAYOUT)
        settings = Run(self.context.folder).newest_settings_file.read_text(encoding="utf-8")
        # Named so that samples come first.
        self.writer.add_text("settings", preformatted(settings), trainer.state.step)

    def on_metrics(self, trainer: Trainer, metrics: StepMetrics) -> None:
        self._add(scalars(metrics), trainer.state.step)
        # Written before the checkpoint of this step, so that a kill leaves no gap in a curve.
        self.writer.flush()

    def on_before_checkpoint(self, trainer: Trainer) -> None:
        self.writer.flush()  # maps of this step, too

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        step = trainer.state.step
        self._add(scalars(metrics) | self.outputs.losses(step), step)
        every = self.context.config.observe.samples.every
        is_due = step == trainer.config.max_steps or (every > 0 and step % every == 0)
        if is_due and "sample/text_summary" not in self._there(step):
            self.writer.add_text("sample", preformatted(self.outputs.sample(step)), step)
        self.writer.flush()

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        # Events up to a checkpoint must also survive a loss of power.
        for events in self.context.folder.glob("events.out.tfevents.*"):
            fsync(events)

    def on_end(self, trainer: Trainer) -> None:
        if trainer.summary is not None:
            self._add_result(trainer.summary, trainer.state.step)
            self._add_embeddings(trainer.state.step)
        self.writer.close()

    def _add_result(self, summary: Summary, step: int) -> None:
        result = {"result/bpb": summary.val_bpb, "result/seconds": summary.seconds}
        # `add_hparams` would write them to another file, which wandb would read twice.
        file: Any = self.writer.file_writer
        for record in hparams(hyperparameters(self.context), result):
            if record.value[0].tag not in self._there(step):
                file.add_summary(record, step)
        self._add(result, step)

    def _add_embeddings(self, step: int) -> None:
        decode = self.context.dataset.tokenizer.decode_bytes
        points = self.context.model.token_embedding.weight.detach()[:MAX_EMBEDDINGS]
        labels = projector_labels([decode([token]) for token in range(len(points))])
        # Rounded, since they are written as text.
        points = points.cpu().double().round(decimals=5)
        # The writer would also create the folder of a run that is gone, and print a warning about
        # what an earlier session left.
        folder = self.context.folder / f"{step:05d}"
        remove(folder)
        folder.mkdir()
        self.writer.add_embedding(points, labels, global_step=step, tag="token_embedding")

    def _add(self, scalars: dict[str, float], step: int) -> None:
        for tag, value in scalars.items():
            if tag not in self._there(step):
                self.writer.add_scalar(tag, value, step)

    def _there(self, step: int) -> Set[str]:
        """The tags that earlier sessions wrote at this step."""
        return self._of_first_step if step == self.context.first_step > 0 else frozenset()

    @cached_property
    def _of_first_step(self) -> Set[str]:
        """What a killed session wrote at the step at which this one begins is not hidden, and comes
        again, if it is an evaluation or a result that was not recorded."""
        return written_tags(self.context.folder, self.context.first_step)


def hyperparameters(context: RunContext) -> dict[str, int | float | str]:
    """Settings by their full names: those that the command line sets, and those that are shown of
    every run. Derived sizes of the model are in the place of nulls."""
    settings = flat({**asdict(context.config), "model": asdict(context.model.config)})
    names = [
        name
        for beginning in (*sorted(context.varied), *ALWAYS)
        for name in settings
        if name.startswith(beginning) and name.startswith(TRAINED)
    ]
    found = {name: _value(settings[name]) for name in names if settings[name] is not None}
    return {**found, "seed": str(settings["seed"])}  # TensorBoard shows the number 1 as 1.0000


def _value(setting: object) -> int | float | str:
    """A number or a text: TensorBoard's writer has no booleans."""
    if isinstance(setting, int | float) and not isinstance(setting, bool):
        return setting
    return setting if isinstance(setting, str) else json.dumps(setting)


def scalars(metrics: StepMetrics | EvalMetrics) -> dict[str, float]:
    """What was measured and is known, by tag."""
    known = {name: value for name, value in asdict(metrics).items() if value is not None}
    return {TAGS[name]: value for name, value in known.items() if name in TAGS}


def open_events(folder: Path, purge_step: int | None = None) -> SummaryWriter:
    """A writer of TensorBoard events to a new file in `folder`, which hides what the files before
    have from `purge_step` on. Raises UserError for a folder that TensorBoard cannot write to.

    TensorBoard reads the files in the order of their names, and names each after the time, which
    can be that of an earlier one, or go back. Here, the number in a name exceeds all before it.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{folder}: TensorBoard needs a folder whose name is UTF-8; rename it, or use a locale "
            "such as LC_ALL=C.UTF-8"
        ) from None
    names = (file.name.split(".") for file in folder.glob("events.out.tfevents.*"))
    number = max([time.time(), *(int(name[3]) + 1 for name in names if name[3].isdecimal())])
    # The name takes the first time that the writer asks for, and no other way gives it a name.
    times = chain([number], iter(time.time, None))
    event_file_writer.time = SimpleNamespace(time=times.__next__)
    try:
        with naming(folder):
            return SummaryWriter(str(folder), purge_step=purge_step)
    finally:
        event_file_writer.time = time


def written_tags(folder: Path, step: int) -> Set[str]:
    """The tags of which TensorBoard shows something at a step."""
    tags = set[str]()
    for path in sorted(folder.glob("events.out.tfevents.*")):
        with path.open("rb") as file, suppress(ValueError):  # the rest is damaged, and not shown
            offset = 0
            while end := record_end(file, offset):
                event, offset = read_event(file, offset, end), end
                if event.session_log.status == SessionLog.START and event.step <= step:
                    tags.clear()  # hidden by a session that came to this step again
                elif event.step == step:
                    tags.update(value.tag for value in event.summary.value)
    return tags


def projector_labels(tokens: Sequence[bytes]) -> list[str]:
    """One label per token, each a line with one column.

    The projector skips empty lines, which would shift all later labels: a token without bytes (a
    special or unused one) is labelled with its id.
    """
    return [
        token_label(token, longest=100) if token else f"<token·{number}>"
        for number, token in enumerate(tokens)
    ]


def preformatted(text: str) -> str:
    """Markdown that TensorBoard displays verbatim: an indented code block with wrapped lines.

    TensorBoard does not wrap code blocks itself, so long lines would be cut off. What Markdown
    takes for a line end, such as a carriage return, ends a line here, too: it would end the block.
    """
    wrapper = textwrap.TextWrapper(
        WIDTH, expand_tabs=False, replace_whitespace=False, drop_whitespace=False
    )
    lines = (part for line in text.splitlines() for part in wrapper.wrap(printable(line)) or [""])
    return "".join(f"    {line}\n" for line in lines)
