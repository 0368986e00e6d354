"""TensorBoard's event files, in the order in which they were written.

TensorBoard, like the Attention tab, reads the event files of a run by their names, which begin with
the time in seconds. Where a session starts, it drops the same and later steps of the files before.
If the clock was set back, the file of a resume would be read before those of earlier sessions,
and the start of one of these would hide the steps that the resumed run logs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from torch.utils.tensorboard import FileWriter, SummaryWriter
from torch.utils.tensorboard.summary import hparams

NAME = re.compile(r"(events\.out\.tfevents\.)([0-9]{10})(\..*)")


class EventsWriter(SummaryWriter):
    """Writes to a new file, which comes after all others in its folder."""

    file_writer: Any  # torch declares both as None
    all_writers: Any

    def _get_file_writer(self) -> FileWriter:
        if self.file_writer is not None:
            return cast(FileWriter, self.file_writer)
        writer = _Events(self.log_dir, self.max_queue, self.flush_secs)
        self.file_writer, self.all_writers = writer, {self.log_dir: writer}
        if self.purge_step is not None:
            start = SessionLog(status=SessionLog.START)
            writer.add_event(Event(session_log=start), self.purge_step)
            self.purge_step = None
        return writer

    def add_result(
        self, settings: dict[str, int | float | str], metrics: dict[str, float], step: int
    ) -> None:
        """What the HParams tab shows. `add_hparams` would write it to a file named by the clock."""
        for summary in hparams(settings, metrics):
            self._get_file_writer().add_summary(summary, step)
        for tag, value in metrics.items():
            self.add_scalar(tag, value, step)


class _Events(FileWriter):
    def __init__(self, *given: Any) -> None:
        self.event_writer = _EventFile(*given)


class _EventFile(EventFileWriter):
    @property
    def _file_name(self) -> str:  # which the base class sets, and opens
        return self._name

    @_file_name.setter
    def _file_name(self, name: str) -> None:
        self._name = str(after_others(Path(name)))


def after_others(file: Path) -> Path:
    """This name of an event file; with a later time if others in the folder have one that is not
    before it."""
    matches = [NAME.fullmatch(path.name) for path in (file, *file.parent.iterdir())]
    own, *others = matches
    if own is None:
        return file
    time = max([int(own[2]), *(int(found[2]) + 1 for found in others if found)])
    return file.with_name(f"{own[1]}{time:010}{own[3]}")
