"""A progress bar for the encoding of a corpus, on standard error if that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

Advance = Callable[[int, int], object]


class _Done(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.completed / task.elapsed if task.elapsed else 0.0
        return Text(f"{task.fields['documents']:,} documents, {speed / 1e6:.1f} MB/s")


@contextmanager
def show_encoding(n_bytes: int) -> Iterator[Advance]:
    """Show a bar until the end of the block; yields what counts bytes and documents that are
    encoded. n_bytes: of the whole text; 0 if that is unknown."""
    console = Console(stderr=True)
    columns = (TextColumn("Encoding"), BarColumn(), _Done(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task, count = progress.add_task("", total=n_bytes or None, documents=0), 0

        def advance(text: int, documents: int) -> None:
            nonlocal count
            count += documents
            progress.update(task, advance=text, documents=count)

        yield advance
