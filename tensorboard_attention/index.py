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
from typing import Any

import numpy as np

from tensorboard_attention.folders import Search
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
            search = Search(self._roots)
            found = sorted(search.runs.items())
            runs = {}
            for name, paths in found:
                run = self._runs.get(name)
                runs[name] = run if run and run.continues_in(paths) else Run(name)
            budget = Budget(ROOM - sum(run.size for run in runs.values()))
            # All of them, since those with nothing new take no time.
            complete = [runs[name].read(path, budget) for name, paths in found for path in paths]
            self._runs = runs
            notes = chain.from_iterable(run.notes() for run in runs.values())
            self._notes = [*islice(chain(notes, search.notes), MOST_NOTES + 1)]
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
        """All scores of all heads: their names, the steps, and the number of heads per layer; and
        float32 values (step, score, head), heads layer by layer, NaN for missing scores. Raises
        KeyError if there are none. Of more than MOST_CURVES bytes, only every second (third, ...)
        step is returned."""
        steps = sorted(self._places(run, tag).items())
        if not steps:
            raise KeyError(tag)
        names, heads, last = steps[-1][1].about
        every = max(1, -(-len(steps) * len(last) // MOST_CURVES))
        steps = steps[(len(steps) - 1) % every :: every]  # with the last one
        values = b"".join(_row(place.about, names, heads) for _, place in steps)
        return {"names": names, "steps": [step for step, _ in steps], "heads": heads}, values

    def _places(self, run: str, tag: str) -> dict[int, Place]:
        with self._lock:
            return dict(self._runs[run].tags[tag])


def _row(about: Header, names: tuple[str, ...], heads: tuple[int, ...]) -> bytes:
    """The scores with these names, NaN for those that are missing or of other heads."""
    if about[:2] == (names, heads):
        return about.scores
    size = 4 * sum(heads)
    known = {}
    if about.heads == heads:
        for place, name in enumerate(about.names):
            known[name] = about.scores[place * size : (place + 1) * size]
    missing = np.full(sum(heads), np.nan, "<f4").tobytes()
    return b"".join(known.get(name, missing) for name in names)
