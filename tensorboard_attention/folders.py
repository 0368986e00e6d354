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
    folders = deque((Path(name), Path(root)) for name, root in roots.items())
    links: deque[tuple[Path, Path]] = deque()
    while folders or links:
        # Links are followed last, so that a folder is listed under its own name.
        name, folder = (folders or links).popleft()
        run = shown(name.as_posix())
        try:
            about = folder.stat()
            with os.scandir(folder) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:  # removed meanwhile, or a link to nothing
            continue
        except OSError as error:
            notes.append(f"{run}: cannot be read: {error.strerror}")
            continue
        if (about.st_dev, about.st_ino) in seen:
            continue
        if len(seen) + n_files >= MAX_FOLDERS:
            notes.append(
                f"{run} and the folders after it are not searched; the log has more than "
                f"{MAX_FOLDERS:,} folders and event files"
            )
            break
        seen.add((about.st_dev, about.st_ino))
        for entry in inside:
            path = folder / entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append((name / entry.name, path))
            elif entry.is_symlink() and os.path.isdir(path):  # noqa: PTH112, which can raise
                links.append((name / entry.name, path))
            elif "tfevents" in entry.name:
                n_files += 1
                runs.setdefault(run, []).append(path)
    return runs, notes


def shown(name: str) -> str:
    """A path as a text that JSON and links can hold, whatever bytes its name has."""
    return os.fsencode(name).decode(errors="backslashreplace")
