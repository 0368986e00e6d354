"""Files of JSON that a run may have beside its event files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tensorboard_attention.limits import RECORD_BYTES
from tensorboard_attention.records import is_plain, open_regular
from tensorboard_attention.strict import from_json


def version(folder: Path, name: str) -> str | None:
    """A text that changes with the file of a run; None if there is none."""
    path = folder / name
    return str(path.stat().st_mtime_ns) if is_plain(path) else None


class TooLarge(ValueError):  # noqa: N818
    """A file has more than the tab's server reads."""

    def __init__(self) -> None:
        super().__init__("it is too large")


def read_all(file: BinaryIO) -> Any:
    """The value in a file of JSON."""
    data = file.read(RECORD_BYTES + 1)
    if len(data) > RECORD_BYTES:
        raise TooLarge
    return from_json(data)


def read_beside(
    folder: Path,
    name: str,
    check: Callable[[Any], None],
    read: Callable[[BinaryIO], Any] = read_all,
) -> Any:
    """The content of a file of a run.

    check: raises some exception if this is not in the format.
    read: reads it from the open file.

    Raises OSError if there is none, or no file that can be one, and ValueError if it is not in the
    format.
    """
    path = folder / name
    if not is_plain(path):
        raise OSError(0, "there is no such file", name)
    try:
        with open_regular(path) as file:
            found = read(file)
        check(found)
    except TooLarge:
        raise
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ValueError("it is not in the format") from None
    return found
