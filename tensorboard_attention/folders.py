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

from tensorboard_attention.limits import MOST_FOLDERS


def find_runs(roots: Mapping[str, str]) -> tuple[dict[str, list[Path]], list[str]]:
    """The event files of each run, oldest file first, and notes on what was not searched.

    roots: the folders to search, by the names of their runs ("." for none).
    """
    runs: dict[str, list[Path]] = {}
    notes: list[str] = []
    seen: set[tuple[int, int]] = set()
    n_files = 0
    folders = deque(roots.items())
    # Links are followed last, so that a folder is listed under its own name.
    links: deque[tuple[str, str]] = deque()
    while folders or links:
        run, folder = (folders or links).popleft()
        if len(seen) + n_files >= MOST_FOLDERS:
            notes.append(
                f"{shown(run)} and the folders after it are not searched; the log has more than "
                f"{MOST_FOLDERS:,} folders and event files"
            )
            break
        try:
            about = Path(folder).stat()
            if (about.st_dev, about.st_ino) in seen:
                continue
            seen.add((about.st_dev, about.st_ino))
            inside, linked, files = _list(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed meanwhile
        except OSError as error:
            notes.append(f"{shown(run)}: cannot be read: {error.strerror}")
            continue
        for found, names in ((folders, inside), (links, linked)):
            found.extend(
                (name if run == "." else f"{run}/{name}", os.path.join(folder, name))  # noqa: PTH118
                for name in names
            )
        if files:
            n_files += len(files)
            runs[shown(run)] = [Path(folder, name) for name in files]
    return runs, notes


def _list(folder: str) -> tuple[list[str], list[str], list[str]]:
    """The names, sorted, of the folders, links to folders and event files in a folder. Names of
    event files start with their time. Raises OSError."""
    folders, links, files = [], [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif "tfevents" in entry.name:
                files.append(entry.name)
            elif entry.is_symlink() and os.path.isdir(entry.path):  # noqa: PTH112
                links.append(entry.name)
    return sorted(folders), sorted(links), sorted(files)


def shown(name: str) -> str:
    """A path as a text that JSON and links can hold, whatever bytes its name has."""
    return os.fsencode(name).decode(errors="backslashreplace")
