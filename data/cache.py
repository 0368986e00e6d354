"""The cache folder: what is published in it is complete, or it is not there.

Two processes that publish the same folder both succeed. The name of a folder must determine its
content.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import UserError, refusal
from common.files import new_folder, remove


class CacheError(UserError):
    """A mistake in `cache_dir`, or what the disk refuses there."""

    def __init__(self, what: str) -> None:
        super().__init__(f"cache_dir: {what}")


@contextmanager
def publish(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill, which becomes `folder` of the cache at the end, unless
    another process was faster. What is there before is damaged, and removed.

    Raises CacheError if the disk refuses; whatever the block raises passes through.
    """
    try:
        remove(folder)
        with new_folder(folder) as temporary:
            yield temporary
    except OSError as error:
        if isinstance(error, FileExistsError) and folder.is_dir():  # another process was faster
            return
        raise CacheError(refusal(error)) from error
