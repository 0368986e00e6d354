"""Finds event files below a log folder, through links too, in a bounded number of folders.

A run is a folder that contains event files, named by its path relative to the log folder ("." for
the log folder itself), behind the name of the log folder if that has one. A folder that a link such
as `latest` leads to again is listed once.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

MOST_FOLDERS = 50_000  # without links
MOST_LINKED = 10_000  # behind all links
MOST_BEHIND_LINK = 2_500
MOST_ENTRIES = 100_000  # of a folder
MOST_FILES = 50_000
MOST_NAME = 1_000  # characters of a folder's path in the log folder


class Search:
    """The event files of each run, oldest file first, and notes on what was not searched."""

    def __init__(self, roots: Mapping[str, str]) -> None:
        """roots: the folders to search, by the names of their runs ("." for none)."""
        self.runs: dict[str, list[Path]] = {}
        self.notes: list[str] = []
        self._seen: set[tuple[int, int]] = set()
        self._files = 0
        self._links: deque[tuple[str, str]] = deque()
        # Links are followed last, so that a folder is listed under its own name.
        for name, folder in roots.items():
            self._below(folder, name, MOST_FOLDERS)
        left = MOST_LINKED
        while self._links and left:
            left -= self._below(*self._links.popleft(), min(left, MOST_BEHIND_LINK))
        if self._links:
            self.notes.append(
                f"{shown(self._links[0][1])}: is not followed, nor are the links after it; there "
                f"are more than {MOST_LINKED:,} folders behind links"
            )

    def _below(self, top: str, name: str, most: int) -> int:
        """Search a folder and those in it, nearest first. Returns how many there were. Notes only
        the first that cannot be read: behind a link to `/` there are many."""
        queue, unreadable, done = deque([(top, name)]), "", 0
        while queue and done < most:
            folder, run = queue.popleft()
            done += 1
            try:
                queue.extend(self._look(folder, run)[: most - done - len(queue) + 1])
            except (FileNotFoundError, NotADirectoryError):
                pass  # removed meanwhile
            except OSError as error:
                unreadable = unreadable or f"{shown(run)}: cannot be read: {error.strerror}"
        if unreadable:
            self.notes.append(unreadable)
        if queue:
            self.notes.append(
                f"{shown(name)}: has more than {most:,} folders; {shown(queue[0][1])} and the "
                "folders after it are not searched"
            )
        return done

    def _look(self, folder: str, run: str) -> list[tuple[str, str]]:
        """List a folder, unless it was before. Returns the folders in it that are no links."""
        about = Path(folder).stat()
        if (about.st_dev, about.st_ino) in self._seen:
            return []
        self._seen.add((about.st_dev, about.st_ino))
        with os.scandir(folder) as listed:
            entries = [*islice(listed, MOST_ENTRIES + 1)]
        if len(entries) > MOST_ENTRIES:
            self.notes.append(f"{shown(run)}: only {MOST_ENTRIES:,} of its files are looked at")
        inside: list[tuple[str, str]] = []
        links: list[tuple[str, str]] = []
        files, long = [], ""
        for entry in entries:
            if _is_folder(entry):
                below = entry.name if run == "." else f"{run}/{entry.name}"
                if len(below) <= MOST_NAME:
                    (links if entry.is_symlink() else inside).append((entry.path, below))
                else:
                    long = below
            elif "tfevents" in entry.name:
                files.append(entry.name)
        if long:
            self.notes.append(f"{shown(long[:80])}…: its path is too long to be searched")
        self._links.extend(sorted(links)[: MOST_LINKED - len(self._links) + 1])
        self._add(folder, run, files)
        return sorted(inside)

    def _add(self, folder: str, run: str, files: list[str]) -> None:
        left = MOST_FILES - self._files
        if len(files) > left:
            self.notes.append(
                f"{shown(run)}: {len(files) - left:,} event files are not read; the log has more "
                f"than {MOST_FILES:,}"
            )
        if files[:left]:
            self._files += len(files[:left])
            self.runs[shown(run)] = [Path(folder, name) for name in sorted(files, key=_age)[:left]]


def shown(name: str) -> str:
    """A path as a text that JSON and links can hold, whatever bytes its name has."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # such as links in a circle
        return False


def _age(name: str) -> list[int | str]:
    """Sorts names of event files, which contain time, host, process and a count: 9 before 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
