"""The logged steps of one run, read from its event files as they grow.

What cannot be shown is skipped and noted. Nothing is read again until its file changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tensorboard.compat.proto.event_pb2 import SessionLog

from tensorboard_attention.apart import apart
from tensorboard_attention.folders import shown
from tensorboard_attention.header import Columns, Header, read_header
from tensorboard_attention.limits import MAX_NOTES, MEMORY_BYTES
from tensorboard_attention.records import attention_values, open_regular, read_event, record_end

STEP_SIZE = 600  # bytes of memory that a step takes beside its tag and scores


class LoggedStep(NamedTuple):
    """The record of a step, by its file and its offset there in bytes; what its header says; and
    how many bytes of memory this takes."""

    path: Path
    offset: int
    header: Header
    size: int


@dataclass
class Budget:
    """What one refresh may still use: time until `end`, and bytes of memory for steps."""

    end: float  # of time.monotonic()
    room: int


@dataclass
class _File:
    """How far an event file was read, its state then, and what was skipped."""

    offset: int = 0
    state: tuple[int, ...] = ()
    skipped: list[str] = field(default_factory=list)

    def skip(self, what: str) -> None:
        if len(self.skipped) < MAX_NOTES:
            self.skipped.append(what)


class Run:
    """What was found in the event files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tags: dict[str, dict[int, LoggedStep]] = {}  # by tag and step; no tag without steps
        self.version = str(time.time_ns())  # changes when steps that were read before do
        self.newest = -math.inf  # when its newest step was logged, in seconds
        self._files: dict[Path, _File] = {}
        self._problems: dict[Path, str] = {}  # why the rest of a file is not read
        self._columns: dict[Columns, Columns] = {}  # one copy in memory for all steps

    @property
    def last_step(self) -> int:
        return max(max(steps) for steps in self.tags.values())

    @property
    def day(self) -> tuple[int, ...]:
        """On which its newest step was logged, by local time; () if the log does not say so."""
        try:
            return time.localtime(self.newest)[:3]
        except (OverflowError, ValueError, OSError):  # no time that the system knows
            return ()

    def continues(self) -> bool:
        """Whether no file that was read is gone or shorter; else the folder was written anew."""
        return all(_size(path) >= file.offset for path, file in self._files.items() if file.offset)

    def size(self) -> int:
        """Bytes of memory that the steps take."""
        return sum(step.size for steps in self.tags.values() for step in steps.values())

    def notes(self) -> Iterator[str]:
        """What is skipped, and why: the name of the file and the reason."""
        for path, file in self._files.items():
            for reason in file.skipped:
                yield f"{shown(path.name)}: {reason}"
        for path, reason in self._problems.items():
            yield f"{shown(path.name)}: is not read: {reason}"

    def read(self, paths: list[Path], budget: Budget) -> bool:
        """Read the new records of each file, up to the first that is incomplete. When the time is
        up, at least one record of each is still read. Returns whether there was time for all."""
        complete, self._problems = apart(paths, lambda path: self._read(path, budget))
        return all(complete.values())

    def _read(self, path: Path, budget: Budget) -> bool:
        """As `read`, for one file. An exception is noted as the reason why the rest is not read."""
        file = self._files.setdefault(path, _File())
        try:
            about = path.stat()
        except FileNotFoundError:  # removed meanwhile, or a link to nothing
            return True
        state = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        if state == file.state:
            return True
        with open_regular(path) as opened:
            while end := record_end(opened, file.offset):
                self._add(path, opened, end, budget)
                file.offset = end
                if time.monotonic() > budget.end:
                    return False
        file.state = state
        return True

    def _add(self, path: Path, opened: BinaryIO, end: int, budget: Budget) -> None:
        """Keep the steps in the next record of a file, which ends at `end`."""
        file = self._files[path]
        try:
            event = read_event(opened, file.offset, end)
        except ValueError as error:
            file.skip(f"the record after {file.offset:,} bytes is skipped: {error}")
            return
        if event.session_log.status == SessionLog.START:
            self._restart(event.step)
        for value in attention_values(event):
            try:
                header = read_header(value.tensor.string_val)
                self._keep(path, file.offset, value.tag, event.step, header, budget)
                self.newest = max(self.newest, event.wall_time)
            except ValueError as error:
                file.skip(f"step {event.step} of {value.tag[:80]!r} is skipped: {error}")

    def _restart(self, first: int) -> None:
        """Forget the steps from `first` on, which a resumed run logs again."""
        before = {
            tag: {number: step for number, step in steps.items() if number < first}
            for tag, steps in self.tags.items()
        }
        before = {tag: steps for tag, steps in before.items() if steps}
        if before != self.tags:
            self.tags = before
            self.version = str(time.time_ns())

    def _keep(
        self, path: Path, offset: int, tag: str, number: int, header: Header, budget: Budget
    ) -> None:
        """Raises ValueError if there is no room."""
        size = STEP_SIZE + len(tag) + len(header.scores)
        if header.columns not in self._columns:
            size += 12 * len(str(header.columns))
        if size > budget.room:
            raise ValueError(f"the log has more steps than fit into {MEMORY_BYTES // 10**6} MB")
        budget.room -= size
        columns = self._columns.setdefault(header.columns, header.columns)
        steps = self.tags.setdefault(tag, {})
        if number in steps:
            self.version = str(time.time_ns())
        steps[number] = LoggedStep(path, offset, header._replace(columns=columns), size)


def _size(path: Path) -> int:
    """Bytes of a file, or -1 if it is gone."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
