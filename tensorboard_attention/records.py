"""Records of TensorBoard's event files.

A record is its length, a checksum of the length, the data and a checksum of the data (TFRecord).
The data is a protocol buffer, `Event`. TensorBoard's own reader does not serve: it cannot start at
an offset, reads a record of any length into memory, waits for named pipes, and computes the
checksum of the data byte by byte in Python. Here only the checksum of the length is verified.
"""

from __future__ import annotations

import os
import stat
import struct
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from tensorboard_attention.limits import RECORD_BYTES
from tensorboard_attention.summary import PLUGIN_NAME

_length_checksum = lru_cache(4096)(masked_crc32c)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError for anything else: a pipe would block, and a
    device may never end."""
    if not path.is_file():
        raise OSError(0, "it is not a regular file")
    return path.open("rb")


def is_plain(path: Path) -> bool:
    """Whether this is a regular file, and not a link to one. Raises OSError if the folder cannot be
    searched."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def record_end(file: BinaryIO, offset: int) -> int | None:
    """Where the record that starts at `offset` ends, in bytes; None if it is not complete yet.
    Raises ValueError if there is no record."""
    file.seek(offset)
    start = file.read(12)
    if len(start) < 12:
        return None
    length, checksum = struct.unpack("<QI", start)
    if checksum != _length_checksum(start[:8]):
        raise ValueError(f"it is damaged after {offset:,} bytes")
    end = offset + 16 + length
    return end if end <= os.fstat(file.fileno()).st_size else None


def read_event(file: BinaryIO, offset: int, end: int) -> Event:
    """The event in the record from `offset` to `end`. Raises ValueError, with the reason, if it is
    too large or no event."""
    length = end - offset - 16
    if length > RECORD_BYTES:
        raise ValueError(f"it has more than {RECORD_BYTES // 10**6} MB")
    file.seek(offset + 12)
    try:
        return Event.FromString(file.read(length))
    except DecodeError:
        raise ValueError("it is not an event") from None


def attention_values(event: Event) -> list[Summary.Value]:
    """The values of an event that `add_attention` logged."""
    values = event.summary.value
    return [value for value in values if value.metadata.plugin_data.plugin_name == PLUGIN_NAME]
