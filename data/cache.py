"""The cache folder: what is published in it is complete, or it is not there.

Two processes that publish the same folder both succeed. The name of a folder must determine its
content.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from errors import UserError, refusal
from files import remove, replace_folder

ABANDONED = 24 * 3600  # seconds without a change


@contextmanager
def publish(folder: Path, setting: str = "cache_dir") -> Iterator[Path]:
    """Yield a temporary folder to fill, which becomes `folder` of the cache at the end.

    Raises UserError, naming `setting`, if the disk refuses; whatever the block raises passes
    through.
    """
    try:
        with replace_folder(folder) as temporary:
            yield temporary
    except OSError as error:
        raise UserError(f"{setting}: {refusal(error)}") from error


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary folders of shards that killed processes left in `folder`."""
    for left in (*folder.glob(".tokens-*"), *folder.glob(".[0-9]*-of-*")):
        with suppress(OSError):
            changed = max(path.stat().st_mtime for path in (left, *left.iterdir()))
            if changed < time.time() - ABANDONED:
                remove(left)
