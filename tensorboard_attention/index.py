"""Finds attention maps in TensorBoard's event files.

TensorBoard itself keeps a sample of the steps in memory: too few for a slider through training, too
much for long texts. The index stores only the scores of each step and where its maps are in its
file, and reads them on request. Files may grow, be cut short or be damaged: all steps that can be
shown are found. A log may come from anywhere, so nothing in it is believed: whatever is skipped is
noted, and neither it nor anything else is read again until its file changes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from tensorboard_attention.folders import find_runs
from tensorboard_attention.header import Header, read_header
from tensorboard_attention.records import open_regular
from tensorboard_attention.run import ROOM, Budget, Place, Run

MOST_CURVES = 48_000_000  # bytes
MOST_NOTES = 100


class Index:
    """All runs below a log folder, or below several by name. Safe to use from several threads."""

    def __init__(self, logs: str | Mapping[str, str]) -> None:
        self._roots = {".": logs} if isinstance(logs, str) else logs
        self._runs: dict[str, Run] = {}
        self._notes: list[str] = []
        self._lock = threading.Lock()

    def refresh(self) -> bool:
        """Read what was written since the last call, for about a second. Returns whether that was
        all of it."""
        with self._lock:
            files, notes = find_runs(self._roots)
            found = sorted(files.items())
            runs = {}
            for name, paths in found:
                run = self._runs.get(name)
                runs[name] = run if run and run.continues_in(paths) else Run(name)
            budget = Budget(ROOM - sum(run.size for run in runs.values()))
            # All of them, since those with nothing new take no time.
            complete = [runs[name].read(path, budget) for name, paths in found for path in paths]
            self._runs = runs
            of_runs = chain.from_iterable(run.notes() for run in runs.values())
            self._notes = [*islice(chain(of_runs, notes), MOST_NOTES + 1)]
            return all(complete)

    def steps(self) -> dict[str, dict[str, list[int]]]:
        """The logged steps by run and tag, without runs that have none."""
        with self._lock:
            return {
                name: {tag: sorted(steps) for tag, steps in sorted(run.tags.items()) if steps}
                for name, run in self._runs.items()
                if any(run.tags.values())
            }

    def versions(self) -> dict[str, str]:
        """For each run that has steps, a text that changes when steps that were read before have
        changed."""
        with self._lock:
            return {name: run.version for name, run in self._runs.items() if any(run.tags.values())}

    def newest(self) -> str | None:
        """The run with the step that was logged last; None if no run has steps."""
        with self._lock:
            runs = {name: run for name, run in self._runs.items() if any(run.tags.values())}
            return max(runs, key=lambda name: (runs[name].newest, name), default=None)

    def folders(self) -> dict[str, Path]:
        """The folder of each run that has steps."""
        with self._lock:
            places = {
                name: [place for steps in run.tags.values() for place in islice(steps.values(), 1)]
                for name, run in self._runs.items()
            }
            return {name: found[0].path.parent for name, found in places.items() if found}

    def notes(self) -> list[str]:
        """What is not shown, and why: one text for each file or folder and reason."""
        with self._lock:
            more = ["There is more that is not shown."] * (len(self._notes) > MOST_NOTES)
            return self._notes[:MOST_NOTES] + more

    def maps(self, run: str, tag: str, step: int) -> tuple[bytes, bytes]:
        """Header and maps as logged. Raises KeyError if there are none, OSError if unreadable,
        ValueError if the file has changed meanwhile."""
        place = self._places(run, tag)[step]
        with open_regular(place.path) as file:
            file.seek(place.header[0])
            header = file.read(place.header[1] - place.header[0])
            file.seek(place.maps[0])
            maps = file.read(place.maps[1] - place.maps[0])
        if read_header(header) != place.about or len(maps) != place.maps[1] - place.maps[0]:
            raise ValueError
        return header, maps

    def scores(self, run: str, tag: str) -> tuple[dict[str, Any], bytes]:
        """All scores of all heads: their names, the steps, for each step the same number for the
        same text, and the number of heads per layer; and float32 values (step, score, head), heads
        layer by layer, NaN for missing scores, and for those measured on another text than that of
        the last step. Raises KeyError if there are none. Of more than MOST_CURVES bytes, only every
        second (third, ...) step is returned."""
        steps = sorted(self._places(run, tag).items())
        if not steps:
            raise KeyError(tag)
        last = steps[-1][1].about
        every = max(1, -(-len(steps) * len(last.scores) // MOST_CURVES))
        steps = steps[(len(steps) - 1) % every :: every]  # with the last one
        values = b"".join(_row(place.about, last) for _, place in steps)
        texts: dict[int, int] = {}
        found = {
            "names": last.names,
            "steps": [step for step, _ in steps],
            "texts": [texts.setdefault(place.about.text, len(texts)) for _, place in steps],
            "heads": last.heads,
        }
        return found, values

    def _places(self, run: str, tag: str) -> dict[int, Place]:
        with self._lock:
            return dict(self._runs[run].tags[tag])


def _row(about: Header, last: Header) -> bytes:
    """The scores of the last step, NaN for those that are missing, measured on another text, or of
    other heads."""
    if about[:3] == last[:3]:
        return about.scores
    size = 4 * sum(last.heads)
    known = {}
    if about.heads == last.heads:
        for place, key in enumerate(zip(about.names, about.measured, strict=True)):
            known[key] = about.scores[place * size : (place + 1) * size]
    missing = np.full(sum(last.heads), np.nan, "<f4").tobytes()
    wanted = zip(last.names, last.measured, strict=True)
    return b"".join(known.get(key, missing) for key in wanted)
