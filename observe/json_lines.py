"""A file of lines of JSON that grows with a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.files import fsync, replace_lines
from training.callback import Callback

if TYPE_CHECKING:
    from training.trainer import Trainer


class JsonLines(Callback):
    """Writes such a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keep(self, is_kept: Callable[[Any], bool]) -> None:
        """Remove all other lines, and those that are incomplete because the process or the disk
        failed."""
        if not self.path.exists():
            return
        # A file that a failing disk damaged may be no text.
        lines = self.path.read_bytes().splitlines(keepends=True)
        replace_lines(self.path, (line for line in lines if _holds(is_kept, line)))

    def append(self, *values: dict[str, Any]) -> None:
        lines = "".join(json.dumps(value) + "\n" for value in values)
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(lines)

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        if self.path.exists():  # what is written survives a loss of power
            fsync(self.path)


def _holds(condition: Callable[[Any], bool], line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and condition(json.loads(line))
    except (ValueError, LookupError, TypeError, RecursionError):
        return False
