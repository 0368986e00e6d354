"""Where the logged attention maps stand in TensorBoard's event files.

TensorBoard itself would keep a sample of the steps in memory: too few for a slider through
training, too much of long texts. The index keeps none: it remembers where each lies and reads it
from the file when asked. Files may grow, be cut short or be damaged: what can be read up to there
counts. Checksums are not verified.

A run is a folder with event files, named by its path below the log folder ("." for that itself).
"""

from __future__ import annotations

import json
import os
import re
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event, SessionLog

from tensorboard_attention import PLUGIN_NAME

Steps = dict[int, "Place"]


class Place(NamedTuple):
    """Where the header and the maps of one step stand: offsets and lengths in bytes."""

    path: Path
    header: tuple[int, int]
    maps: tuple[int, int]


class Index:
    """All runs below a log folder. Any number of threads may ask."""

    def __init__(self, logdir: str) -> None:
        self._logdir = logdir
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Read what was written since the last time."""
        with self._lock:
            found = dict(_event_files(self._logdir)) if self._logdir else {}
            runs = {}
            for name, paths in sorted(found.items()):
                run = self._runs.get(name)
                if run is None or not run.goes_on_in(paths):
                    run = _Run()
                for path in paths:
                    run.read(path)
                runs[name] = run
            self._runs = runs

    def steps(self) -> dict[str, dict[str, list[int]]]:
        """The logged steps of each tag of each run that has any."""
        with self._lock:
            return {
                name: {tag: sorted(steps) for tag, steps in sorted(run.tags.items()) if steps}
                for name, run in self._runs.items()
                if any(run.tags.values())
            }

    def versions(self) -> dict[str, str]:
        """For each run a text that changes when what was logged is no longer what it was."""
        with self._lock:
            return {name: run.version for name, run in self._runs.items()}

    def maps(self, run: str, tag: str, step: int) -> tuple[bytes, bytes]:
        """Header and maps as they were logged. KeyError where there are none, OSError where the
        file is gone."""
        place = self._steps_of(run, tag)[step]
        with place.path.open("rb") as file:
            return _read(file, place.header), _read(file, place.maps)

    def scores(self, run: str, tag: str) -> tuple[dict[str, Any], np.ndarray]:
        """The scores of every head at every step: the names, steps and heads of each layer; and an
        array (step, score, head), heads layer by layer, NaN where a step lacks one."""
        steps = sorted(self._steps_of(run, tag).items())
        headers = [json.loads(header) for header in _headers([place for _, place in steps])]
        names, heads = list(headers[-1]["scores"]), headers[-1]["heads"]
        values = np.full((len(steps), len(names), sum(heads)), np.nan, "<f4")
        for row, header in zip(values, headers, strict=True):
            for number, name in enumerate(names):
                if name in header["scores"] and header["heads"] == heads:
                    row[number] = [score for layer in header["scores"][name] for score in layer]
        return {"names": names, "steps": [step for step, _ in steps], "heads": heads}, values

    def _steps_of(self, run: str, tag: str) -> Steps:
        with self._lock:
            return dict(self._runs[run].tags[tag])


class _Run:
    """What was found in the event files of one folder, and how far each was read."""

    def __init__(self) -> None:
        self.tags: dict[str, Steps] = {}
        self.version = str(time.time_ns())
        self._offsets: dict[Path, int] = {}

    def goes_on_in(self, paths: list[Path]) -> bool:
        """Whether all files are still there, none shorter: else the folder was written anew."""
        return all(
            path in paths and _size(path) >= offset for path, offset in self._offsets.items()
        )

    def read(self, path: Path) -> None:
        """Take in the records that are new; stop at one that is not whole."""
        offset = self._offsets.get(path, 0)
        try:
            with path.open("rb") as file:
                for start, data in _records(file, offset):
                    self._take(path, start, Event.FromString(data), data)
                    offset = start + len(data) + 4
        except (DecodeError, OSError):
            pass
        if offset:
            self._offsets[path] = offset

    def _take(self, path: Path, start: int, event: Event, data: bytes) -> None:
        if event.session_log.status == SessionLog.START:
            # A resumed run writes these steps again.
            for steps in self.tags.values():
                for step in [each for each in steps if each >= event.step]:
                    del steps[step]
                    self.version = str(time.time_ns())
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name != PLUGIN_NAME:
                continue
            strings = value.tensor.string_val
            if len(strings) == 2:
                header, maps = ((start + data.index(each), len(each)) for each in strings)
                steps = self.tags.setdefault(value.tag, {})
                if event.step in steps:
                    self.version = str(time.time_ns())
                steps[event.step] = Place(path, header, maps)


def _event_files(logdir: str) -> Iterator[tuple[str, list[Path]]]:
    """Each run's name and event files, oldest first. A folder that links lead to again, such as
    `latest`, counts once."""
    seen = set()
    for folder, below, names in os.walk(logdir, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        below.sort(key=lambda name: (Path(folder, name).is_symlink(), name))
        files = [Path(folder, name) for name in sorted(names, key=_age) if "tfevents" in name]
        if files:
            yield Path(os.path.relpath(folder, logdir)).as_posix(), files


def _size(path: Path) -> int:
    """In bytes; -1 of a file that is gone."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _age(name: str) -> list[int | str]:
    """Sorts event files, whose names end in time, host, process and a count: 9 before 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _records(file: BinaryIO, offset: int) -> Iterator[tuple[int, bytes]]:
    """Each whole record from `offset` on: where its data starts, and the data (TFRecord: length,
    checksum, data, checksum)."""
    size = os.fstat(file.fileno()).st_size
    while offset + 16 <= size:
        file.seek(offset)
        (length,) = struct.unpack("<Q", file.read(8))
        if offset + 16 + length > size:
            return
        file.seek(offset + 12)
        yield offset + 12, file.read(length)
        offset += 16 + length


def _headers(places: list[Place]) -> Iterator[bytes]:
    for place in places:
        with place.path.open("rb") as file:
            yield _read(file, place.header)


def _read(file: BinaryIO, part: tuple[int, int]) -> bytes:
    file.seek(part[0])
    return file.read(part[1])
