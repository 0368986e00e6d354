"""A remote file as a stream.

Promises: memory does not depend on the size of the file; after a cut connection, reading goes on
where it stopped.
"""

from __future__ import annotations

import io
import os
import time
from contextlib import suppress
from typing import Any

BLOCK = 1 << 22  # bytes that are read at a time
WAITS = (0.5, 2.0, 8.0)  # seconds before a cut connection is opened again


class Remote(io.RawIOBase):
    """The bytes of the file called `name` of a file system of fsspec. After a cut connection, it is
    opened again at the same place.

    size: in bytes; None if the server does not say, and then there is no seeking, and the end of a
        connection is that of the file.

    Reading raises FileNotFoundError, and ConnectionError if the rest does not come.
    """

    def __init__(self, files: Any, name: str, size: int | None) -> None:
        self.files, self.name, self.size, self.place = files, name, size, 0
        self.file: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self.size is not None

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.place, os.SEEK_END: self.size or 0}
        place = base[whence] + offset
        if place != self.place:
            self._close()
        self.place = place
        return place

    def readinto(self, buffer: Any) -> int:
        for wait in (*WAITS, None):
            try:
                self.file = self.file or self._open()
                data = self.file.read(len(buffer))
                if not data and self.place < (self.size or 0):
                    raise OSError(f"the connection was cut after {self.place} bytes")
                buffer[: len(data)] = data
                self.place += len(data)
                return len(data)
            except FileNotFoundError:
                raise
            except Exception as error:  # each file system has its own
                self._close()
                if wait is None:
                    raise ConnectionError(reason_of(error)) from error
                time.sleep(wait)
        raise AssertionError

    def _open(self) -> Any:
        path = self.files._strip_protocol(self.name)
        file = self.files.open(path, "rb", block_size=BLOCK)
        if not self.place:
            return file
        try:
            file.seek(self.place)
        except (ValueError, OSError, NotImplementedError):  # a server without ranges
            left = self.place
            while left:
                skipped = len(file.read(min(left, BLOCK)))
                if not skipped:
                    raise OSError("the file is shorter than before") from None
                left -= skipped
        return file

    def _close(self) -> None:
        with suppress(Exception):
            if self.file is not None:
                self.file.close()
        self.file = None

    def close(self) -> None:
        self._close()
        super().close()


def reason_of(error: BaseException) -> str:
    """Why a file system refuses, in a few words."""
    if isinstance(error, FileNotFoundError) and not error.strerror:  # fsspec's: only the name
        return reason_of(error.__cause__) if error.__cause__ else "not found"
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return text[:200] or type(error).__name__
