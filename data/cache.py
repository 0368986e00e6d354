"""Folders on disk that appear whole or not at all.

Promises: what `publish` makes under a name is complete and on the disk before the name exists;
after a failure nothing that it made is left; two processes that publish the same name both succeed.
Knows nothing of what the folders hold, except that the name decides the bytes.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from errors import UserError


@contextmanager
def publish(folder: Path) -> Iterator[Path]:
    """Yield a new temporary folder beside `folder`; when the block ends well, give it that name.

    Where `folder` exists already (another process was first, or it was found damaged), its files
    are replaced one by one, so that a reader never finds it missing. A killed process can leave a
    temporary folder (its name starts with a dot), which nothing ever reads.

    Raises UserError if the disk refuses, and lets pass what the block raises.
    """
    absent = [parent for parent in folder.parents if not parent.exists()]
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.iterdir():
            fsync(file)
        fsync(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
            for file in temporary.iterdir():
                file.replace(folder / file.name)
            temporary.rmdir()
        fsync(folder.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        for parent in absent:
            with suppress(OSError):
                parent.rmdir()
        if isinstance(error, OSError):
            raise UserError(
                f"cache_dir: cannot write in {folder.parent} ({error.strerror}); "
                "free some space or choose another folder"
            ) from error
        raise


def fsync(path: Path) -> None:
    """Have what a file or folder holds on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
