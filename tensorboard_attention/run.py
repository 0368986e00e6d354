"""The logged steps of one run, read from its event files as they grow.

Nothing that a file says is believed. What cannot be shown is skipped and noted, and neither it nor
anything else is read again until its file changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tensorboard_attention.folders import shown
from tensorboard_attention.header import Header, read_header
from tensorboard_attention.records import MOST_BYTES, Span, open_regular, read_event, records

SECONDS = 1.0  # that one refresh reads; the next one goes on from there
ROOM = 150_000_000  # bytes of memory for the steps of all runs
STEP_SIZE = 600  # bytes of memory that a step takes beside its scores
TAG_SIZE = 1_000
# Bytes of memory for a character of a run's name or a tag: so many that those that find room make
# an answer of less than 64 MB, although each can take 24 bytes of it.
CHARACTER_SIZE = 80
MOST_TAG = 500  # characters
MOST_STEP = 2**53  # JavaScript has no larger integers
MOST_NOTES = 3  # on records of one file


class Place(NamedTuple):
    """Where a step's header and maps are in a file, what the header says, and how many bytes of
    memory this takes."""

    path: Path
    header: Span
    maps: Span
    about: Header
    size: int


class Budget:
    """What one refresh may use: time, and memory for all steps."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._end = math.inf

    def start(self) -> None:
        """The time starts with the first file that is read, so that each refresh gets on."""
        self._end = min(self._end, time.monotonic() + SECONDS)

    def is_over(self) -> bool:
        return time.monotonic() > self._end


class _File:
    """How far an event file was read, its state then, and what was skipped."""

    def __init__(self) -> None:
        self.offset = 0
        self.state: tuple[int, ...] = ()
        self.problem = ""  # why the rest is not read
        self.skipped: list[str] = []

    def skip(self, what: str) -> None:
        if len(self.skipped) < MOST_NOTES:
            self.skipped.append(what)
        elif len(self.skipped) == MOST_NOTES:
            self.skipped.append("more of it is skipped")


class Run:
    """What was found in the event files of one folder."""

    def __init__(self, name: str) -> None:
        self.tags: dict[str, dict[int, Place]] = {}
        self.version = str(time.time_ns())
        self.size = 0
        self.newest = -math.inf  # when its newest step was logged, in seconds
        self._name = name
        self._files: dict[Path, _File] = {}

    def continues_in(self, paths: list[Path]) -> bool:
        """Whether no file that was read is gone or shorter. Otherwise the folder was written anew.
        Forgets other files that are gone."""
        known = {*paths}
        for path in [*self._files]:
            offset = self._files[path].offset
            if offset and (path not in known or _size(path) < offset):
                return False
            if path not in known:
                del self._files[path]
        return True

    def notes(self) -> Iterator[str]:
        for path, file in self._files.items():
            name = shown(path.name) if self._name == "." else f"{self._name}/{shown(path.name)}"
            for what in (*file.skipped, file.problem):
                if what:
                    yield f"{name}: {what}"

    def read(self, path: Path, budget: Budget) -> bool:
        """Read the new records, up to one that is incomplete. Returns whether there was time."""
        file = self._files.setdefault(path, _File())
        try:
            about = path.stat()
            state = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
            if state == file.state:
                return True
            if budget.is_over():
                return False
            budget.start()
            file.state, file.problem = state, ""
            with open_regular(path) as opened:
                for start, data, end in records(opened, file.offset):
                    self._add(path, start, data, budget)
                    file.offset = end
                    if budget.is_over():
                        file.state = ()
                        return False
        except FileNotFoundError:  # removed meanwhile, or a link to nothing
            file.problem = ""
        except OSError as error:
            file.problem = f"is not read: {error.strerror}"
        except ValueError as error:
            file.problem = str(error)
        return True

    def _add(self, path: Path, start: int, data: bytes | None, budget: Budget) -> None:
        skip = self._files[path].skip
        record = f"the record after {start - 12:,} bytes is skipped"
        if data is None:
            skip(f"{record}: it has more than {MOST_BYTES // 10**6} MB")
            return
        try:
            step, restarts, wall_time, values = read_event(data)
        except ValueError as error:
            skip(f"{record}: {error}")
            return
        if restarts:
            self._restart(step, budget)
        for tag, strings in values:
            try:
                about = _check(step, tag, data, strings)
                header, maps = ((each[0] + start, each[1] + start) for each in strings)
                self._keep(step, tag, Place(path, header, maps, about, 0), budget)
                self.newest = max(self.newest, wall_time)
            except ValueError as error:
                skip(f"step {step} of {tag[:80]!r} is skipped: {error}")

    def _restart(self, first: int, budget: Budget) -> None:
        """Forget the steps that a resumed run logs again."""
        for steps in self.tags.values():
            for step in [each for each in steps if each >= first]:
                self._forget(steps, step, budget)

    def _keep(self, step: int, tag: str, place: Place, budget: Budget) -> None:
        """Raises ValueError if there is no room."""
        steps = self.tags.get(tag, {})
        last = next(reversed(steps.values())).about if steps else Header((), (), (), 0, b"")
        size = STEP_SIZE + len(place.about.scores)
        if place.about[:3] == last[:3]:
            # One copy of the others in memory.
            about = last._replace(text=place.about.text, scores=place.about.scores)
            place = place._replace(about=about)
        else:
            size += 12 * len(f"{place.about[:3]}")
        new = 0 if tag in self.tags else TAG_SIZE + CHARACTER_SIZE * len(self._name + tag)
        if size + new > budget.room:
            raise ValueError(f"the log has more steps than fit into {ROOM // 10**6} MB")
        if step in steps:
            self._forget(steps, step, budget)
        self.size += size + new
        budget.room -= size + new
        self.tags.setdefault(tag, steps)[step] = place._replace(size=size)

    def _forget(self, steps: dict[int, Place], step: int, budget: Budget) -> None:
        size = steps.pop(step).size
        self.size -= size
        budget.room += size
        self.version = str(time.time_ns())


def _check(step: int, tag: str, data: bytes, strings: list[Span]) -> Header:
    """The header of a step. Raises ValueError, with the reason, if the step cannot be shown."""
    if len(strings) != 2:
        raise ValueError("it is not a header and maps")
    if len(tag) > MOST_TAG:
        raise ValueError(f"its tag has more than {MOST_TAG} characters")
    if abs(step) >= MOST_STEP:
        raise ValueError("JavaScript has no integers of this size")
    return read_header(data[slice(*strings[0])])


def _size(path: Path) -> int:
    """Bytes of a file, or -1 if it is gone."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
