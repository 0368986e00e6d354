"""Finds attention maps in TensorBoard's event files.

TensorBoard itself keeps a sample of the steps in memory: too few for a slider through training, too
much for long texts. The index stores only the scores of each step and where its record is in its
file, and reads the maps on request. Files may grow, be cut short or be damaged: all steps that can
be shown are found.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tensorboard_attention.folders import find_runs
from tensorboard_attention.header import read_header
from tensorboard_attention.limits import MAX_NOTES, MEMORY_BYTES
from tensorboard_attention.records import attention_values, open_regular, read_event, record_end
from tensorboard_attention.run import Budget, LoggedStep, Run

Value = TypeVar("Value")

SECONDS = 1.0  # that one refresh reads; the next one goes on from there


class Index:
    """All runs below a log folder, or below several by name. Safe to use from several threads."""

    def __init__(self, logs: str | Mapping[str, str]) -> None:
        self._roots = {".": logs} if isinstance(logs, str) else logs
        self._runs: dict[str, Run] = {}
        self._unsearched: list[str] = []  # notes on folders
        self._lock = threading.Lock()

    def refresh(self) -> bool:
        """Read what was written since the last call, for about a second. Returns whether that was
        all of it."""
        with self._lock:
            files, self._unsearched = find_runs(self._roots)
            runs = {}
            for name, paths in sorted(files.items()):
                run = self._runs.get(name)
                runs[name] = run if run and run.continues() else Run(paths[0].parent)
            room = MEMORY_BYTES - sum(run.size() for run in runs.values())
            budget = Budget(time.monotonic() + SECONDS, room)
            # All of them, since those with nothing new take no time.
            complete = [run.read(files[name], budget) for name, run in runs.items()]
            self._runs = runs
            return all(complete)

    def steps(self) -> dict[str, dict[str, list[int]]]:
        """The logged steps by run and tag, without runs that have none."""
        with self._lock:
            return {
                name: {tag: sorted(steps) for tag, steps in sorted(run.tags.items())}
                for name, run in self._runs.items()
                if run.tags
            }

    def versions(self) -> dict[str, str]:
        """For each run that has steps, a text that changes when steps that were read before have
        changed."""
        return {name: run.version for name, run in self._logged_runs().items()}

    def first(self) -> str | None:
        """Of the runs of the newest day, by local time, the one with the largest step; of several,
        the newest. None if there are no runs."""
        runs = self._logged_runs()

        def rank(name: str) -> tuple[tuple[int, ...], int, float]:
            return runs[name].day, runs[name].last_step, runs[name].newest

        return max(runs, key=rank, default=None)

    def folders(self) -> dict[str, Path]:
        """The folder of each run that has steps."""
        return {name: run.folder for name, run in self._logged_runs().items()}

    def folder(self, run: str) -> Path:
        """The folder of a run that has steps. Reads the log until the run is found, as nothing may
        have been read yet. Raises KeyError if there is no such run."""
        while run not in (folders := self.folders()):
            if self.refresh():
                return self.folders()[run]
        return folders[run]

    def notes(self, others: Sequence[str] = ()) -> list[str]:
        """What is not shown, and why: folders, files and steps, and `others`."""
        with self._lock:
            found = [(name, note) for name, run in self._runs.items() for note in run.notes()]
        skipped = [note if name == "." else f"{name}/{note}" for name, note in found]
        notes = [*self._unsearched, *skipped, *others]
        more = ["There is more that is not shown."] * (len(notes) > MAX_NOTES)
        return notes[:MAX_NOTES] + more

    def maps(self, run: str, tag: str, step: int) -> tuple[bytes, bytes]:
        """Header and maps as logged. Raises KeyError if there are none, OSError if unreadable,
        ValueError if the file has changed meanwhile."""
        logged = self._logged(run, tag)[step]
        with open_regular(logged.path) as file:
            end = record_end(file, logged.offset)
            if end is None:
                raise ValueError("the file has become shorter")
            event = read_event(file, logged.offset, end)
        for value in attention_values(event):
            if value.tag == tag and read_header(value.tensor.string_val) == logged.header:
                header, maps = value.tensor.string_val
                return header, maps
        raise ValueError("the file has another record there")

    def scores(self, run: str, tag: str) -> tuple[dict[str, Any], bytes]:
        """All scores of all heads, by step: in "texts", the same number for the same text; in
        "kinds", which of "columns" it has; and the float32 values of one step after another. Raises
        KeyError if there are none."""
        steps = sorted(self._logged(run, tag).items())
        headers = [logged.header for _, logged in steps]
        texts, _ = _numbered(header.text for header in headers)
        kinds, columns = _numbered(header.columns for header in headers)
        found = {
            "steps": [step for step, _ in steps],
            "texts": texts,
            "kinds": kinds,
            "columns": [kind._asdict() for kind in columns],
        }
        return found, b"".join(header.scores for header in headers)

    def _logged_runs(self) -> dict[str, Run]:
        """Those that have steps."""
        with self._lock:
            return {name: run for name, run in self._runs.items() if run.tags}

    def _logged(self, run: str, tag: str) -> dict[int, LoggedStep]:
        with self._lock:
            return dict(self._runs[run].tags[tag])


def _numbered(values: Iterable[Value]) -> tuple[list[int], list[Value]]:
    """The number of each value, the same for equal ones; and the values by their numbers."""
    numbers: dict[Value, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values], [*numbers]
