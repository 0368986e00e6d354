"""Finds event files below a log folder, through links too.

A run is a folder that contains event files, named by its path relative to the log folder ("." for
the log folder itself), behind the name of the log folder if that has one. A folder that a link such
as `latest` leads to again is listed once.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from tensorboard_attention.limits import MAX_FOLDERS


def find_runs(roots: Mapping[str, str]) -> tuple[dict[str, list[Path]], list[str]]:
    """The event files of each run in the order of their names, in which TensorBoard reads them, and
    notes on what was not searched.

    roots: the folders to search, by the names of their runs ("." for none).
    """
    runs: dict[str, list[Path]] = {}
    notes: list[str] = []
    seen: set[tuple[int, int]] = set()
    n_files = 0
    # Links are followed last, so that a folder is listed under its own name.
    starts = deque(roots.items())
    while starts:
        start, root = starts.popleft()
        errors: list[OSError] = []
        for folder, inside, files in os.walk(root, onerror=errors.append):
            run = _name(start, root, folder)
            try:
                about = Path(folder).stat()
            except OSError:  # removed meanwhile
                continue
            if (about.st_dev, about.st_ino) in seen:
                inside.clear()
                continue
            if len(seen) + n_files >= MAX_FOLDERS:
                notes.append(
                    f"{run} and the folders after it are not searched; the log has more than "
                    f"{MAX_FOLDERS:,} folders and event files"
                )
                return runs, notes
            seen.add((about.st_dev, about.st_ino))
            inside.sort()
            paths = [os.path.join(folder, name) for name in inside]  # noqa: PTH118
            # Path.is_symlink raises where it may not look.
            links = [path for path in paths if os.path.islink(path)]  # noqa: PTH114
            starts += ((_name(start, root, path), path) for path in links)
            events = [Path(folder, name) for name in sorted(files) if "tfevents" in name]
            if events:
                n_files += len(events)
                runs[run] = events
        for error in errors:
            if not isinstance(error, FileNotFoundError):
                where = _name(start, root, error.filename)
                notes.append(f"{where}: cannot be read: {error.strerror}")
    return runs, notes


def _name(start: str, root: str, folder: str | Path) -> str:
    """The run of a folder below `root`, which is that of the run `start`."""
    return shown(Path(start, os.path.relpath(folder, root)).as_posix())


def shown(name: str) -> str:
    """A path as a text that JSON and links can hold, whatever bytes its name has."""
    return os.fsencode(name).decode(errors="backslashreplace")
