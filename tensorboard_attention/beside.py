"""Files that a run may have beside its event files."""

from __future__ import annotations

from pathlib import Path

from tensorboard_attention.limits import RECORD_BYTES
from tensorboard_attention.records import is_plain


def version(folder: Path, name: str) -> str | None:
    """A text that changes with the file of a run; None if there is none."""
    path = folder / name
    return str(path.stat().st_mtime_ns) if is_plain(path) else None


def read_beside(path: Path) -> bytes:
    """The content of a file of a run. Raises OSError if there is none, or no file that can be one,
    and ValueError if it is too large."""
    if not is_plain(path):
        raise OSError(0, "there is no such file")
    with path.open("rb") as file:
        data = file.read(RECORD_BYTES + 1)
    if len(data) > RECORD_BYTES:
        raise ValueError("it is too large")
    return data
