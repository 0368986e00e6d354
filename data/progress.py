"""A progress bar for reading files, on standard error if that is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Stream: TypeAlias = Any  # a binary file to read: those of fsspec and Python share no class


class Reading:
    """Follows the files that are read: their stored bytes, of which there are `total`, and the
    bytes of text in them, which can be compressed or only one column.

    skipped: the names of files that are not text.
    """

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self.text, self._done = progress, 0, 0
        self.skipped: list[str] = []
        self._current: tuple[Stream, int] | None = None
        self._task = progress.add_task("Encoding", total=total or None, text=0)

    @contextmanager
    def follow(self, stored: Stream, size: int | None) -> Iterator[None]:
        """Follow a file that has been opened, until the end of the block."""
        self._current = stored, size or 0
        try:
            yield
        finally:  # the file is closed
            self._current = None
        self.skip(size or 0)

    def skip(self, n_bytes: int) -> None:
        """Count stored bytes that need not be read."""
        self._done += n_bytes
        self.advance(0)

    def advance(self, text: int) -> None:
        """Count bytes of text that are encoded."""
        self.text += text
        stored, size = self._current or (None, 0)
        place = 0 if stored is None else min(stored.tell(), size)
        self._progress.update(self._task, completed=self._done + place, text=self.text)


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.fields["text"] / task.elapsed if task.elapsed else 0.0
        return Text(f"{speed / 1e6:.1f} MB/s")


@contextmanager
def show_reading(total: int) -> Iterator[Reading]:
    """Show a bar until the end of the block. total: the stored bytes; 0 if they are unknown."""
    console = Console(stderr=True)
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()),
        *(_Speed(), TimeRemainingColumn()),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield Reading(progress, total)
