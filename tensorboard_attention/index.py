"""Finds attention maps in TensorBoard's event files.

TensorBoard itself keeps a sample of the steps in memory: too few for a slider through training, too
much for long texts. The index stores only where each step is in its file, and reads the file on
request. Files may grow, be cut short or be damaged: everything before the damage is found.
Checksums are not verified.

A run is a folder that contains event files, named by its path relative to the log folder ("." for
the log folder itself).
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

from tensorboard_attention.summary import PLUGIN_NAME


class Place(NamedTuple):
    """Where a step's header and maps are in a file: offsets and lengths in bytes."""

    path: Path
    header: tuple[int, int]
    maps: tuple[int, int]


class Index:
    """All runs below a log folder. Safe to use from several threads."""

    def __init__(self, logdir: str) -> None:
        self._logdir = logdir
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Read what was written since the last call."""
        with self._lock:
            found = dict(_event_files(self._logdir)) if self._logdir else {}
            runs = {}
            for name, paths in sorted(found.items()):
                run = self._runs.get(name)
                if run is None or not run.continues_in(paths):
                    run = _Run()
                for path in paths:
                    run.read(path)
                runs[name] = run
            self._runs = runs

    def steps(self) -> dict[str, dict[str, list[int]]]:
        """The logged steps by run and tag, without runs that have none."""
        with self._lock:
            return {
                name: {tag: sorted(steps) for tag, steps in sorted(run.tags.items()) if steps}
                for name, run in self._runs.items()
                if any(run.tags.values())
            }

    def versions(self) -> dict[str, str]:
        """For each run, a text that changes when steps that were read before have changed."""
        with self._lock:
            return {name: run.version for name, run in self._runs.items()}

    def maps(self, run: str, tag: str, step: int) -> tuple[bytes, bytes]:
        """Header and maps as logged. Raises KeyError if there are none, OSError if unreadable."""
        place = self._places(run, tag)[step]
        with place.path.open("rb") as file:
            return _read(file, place.header), _read(file, place.maps)

    def scores(self, run: str, tag: str) -> tuple[dict[str, Any], np.ndarray]:
        """All scores of all heads: their names, the steps, and the number of heads per layer; and
        an array of shape (step, score, head), heads layer by layer, NaN for missing scores. Raises
        as `maps` does."""
        steps = sorted(self._places(run, tag).items())
        headers = []
        for _, place in steps:
            with place.path.open("rb") as file:
                headers.append(json.loads(_read(file, place.header)))
        names, heads = list(headers[-1]["scores"]), headers[-1]["heads"]
        values = np.full((len(steps), len(names), sum(heads)), np.nan, "<f4")
        for rows, header in zip(values, headers, strict=True):
            for row, name in zip(rows, names, strict=True):
                if name in header["scores"] and header["heads"] == heads:
                    row[:] = [score for layer in header["scores"][name] for score in layer]
        return {"names": names, "steps": [step for step, _ in steps], "heads": heads}, values

    def _places(self, run: str, tag: str) -> dict[int, Place]:
        with self._lock:
            return dict(self._runs[run].tags[tag])


class _Run:
    """What was found in the event files of one folder, and how far each file was read."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[int, Place]] = {}
        self.version = str(time.time_ns())
        self._offsets: dict[Path, int] = {}

    def continues_in(self, paths: list[Path]) -> bool:
        """Whether no file is gone or shorter. Otherwise the folder was written anew."""
        return all(path in paths and _size(path) >= end for path, end in self._offsets.items())

    def read(self, path: Path) -> None:
        """Read the new records, up to one that is incomplete or damaged."""
        offset = self._offsets.get(path, 0)
        try:
            with path.open("rb") as file:
                for start, data in _records(file, offset):
                    self._add(path, start, Event.FromString(data), data)
                    offset = start + len(data) + 4
        except (DecodeError, OSError):
            pass
        if offset:
            self._offsets[path] = offset

    def _add(self, path: Path, start: int, event: Event, data: bytes) -> None:
        if event.session_log.status == SessionLog.START:
            # A resumed run logs the steps from here on again.
            for steps in self.tags.values():
                for step in [each for each in steps if each >= event.step]:
                    del steps[step]
                    self.version = str(time.time_ns())
        for value in event.summary.value:
            strings = value.tensor.string_val
            if value.metadata.plugin_data.plugin_name == PLUGIN_NAME and len(strings) == 2:
                header, maps = ((start + data.index(each), len(each)) for each in strings)
                steps = self.tags.setdefault(value.tag, {})
                if event.step in steps:
                    self.version = str(time.time_ns())
                steps[event.step] = Place(path, header, maps)


def _event_files(logdir: str) -> Iterator[tuple[str, list[Path]]]:
    """The name and event files of each run, oldest file first. A folder that a link such as
    `latest` leads to again is listed once."""
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
    """Bytes of a file, or -1 if it is gone."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _age(name: str) -> list[int | str]:
    """Sorts names of event files, which contain time, host, process and a count: 9 before 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def _records(file: BinaryIO, offset: int) -> Iterator[tuple[int, bytes]]:
    """Each complete record from `offset` on: where its data starts, and the data. A record is its
    length, a checksum, the data and a checksum (TFRecord)."""
    size = os.fstat(file.fileno()).st_size
    while offset + 16 <= size:
        file.seek(offset)
        (length,) = struct.unpack("<Q", file.read(8))
        if offset + 16 + length > size:
            return
        file.seek(offset + 12)
        yield offset + 12, file.read(length)
        offset += 16 + length


def _read(file: BinaryIO, part: tuple[int, int]) -> bytes:
    file.seek(part[0])
    return file.read(part[1])
