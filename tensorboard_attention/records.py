"""Records of TensorBoard's event files, from files that anyone may have written.

A record is its length, a checksum of the length, the data and a checksum of the data (TFRecord).
Only the checksum of the length is verified. The data is a protocol buffer, `Event`: only the few
fields that the tab needs are read, because parsing all of it can take fifty times its size.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from tensorboard_attention.summary import PLUGIN_NAME

MOST_BYTES = 64_000_000  # of a record; what the tab asks for is part of one record
MOST_FIELDS = 1_000  # of a message that can contain attention maps
# Without O_NONBLOCK, opening a named pipe waits until a process writes to it. Windows has no such
# flag, and no named pipes in folders.
FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
# Numbers of the fields with their types, as they are stored.
WALL_TIME, STEP, SUMMARY, SESSION_LOG = b"\x09\x10\x2a\x3a"  # of Event
VALUE = 0x0A  # of Summary
TAG, TENSOR, METADATA = b"\x0a\x42\x4a"  # of Summary.Value
PLUGIN_DATA = NAME = 0x0A  # of SummaryMetadata and of its PluginData
STRINGS = 0x42  # of TensorProto
STATUS = 0x08  # of SessionLog

Span = tuple[int, int]  # start and end
_length_checksum = lru_cache(4096)(masked_crc32c)


class Found(NamedTuple):
    """What an event has for the tab. Values: each tag with the places of its tensor's strings."""

    step: int
    restarts: bool  # a resumed run logs the steps from here on again
    wall_time: float  # in seconds; of no known value in a hostile log, but never NaN
    values: list[tuple[str, list[Span]]]


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading without ever waiting. Raises OSError for pipes, devices and such."""
    if not stat.S_ISREG(path.stat().st_mode):  # opening alone can start a device
        raise OSError(0, "it is not a regular file")
    return os.fdopen(os.open(path, FLAGS), "rb")


def records(file: BinaryIO, offset: int) -> Iterator[tuple[int, bytes | None, int]]:
    """Each complete record from `offset` on: where its data starts, the data (None for more than
    MOST_BYTES), and where the next record starts. Raises ValueError where there is no record."""
    size = os.fstat(file.fileno()).st_size
    while offset + 16 <= size:
        file.seek(offset)
        head = file.read(12)
        if len(head) < 12:  # the file has become shorter
            return
        length, checksum = struct.unpack("<QI", head)
        if checksum != _length_checksum(head[:8]):
            raise ValueError(f"is damaged after {offset:,} bytes; the rest is not read")
        end = offset + 16 + length
        if end > size:
            return
        data = file.read(length) if length <= MOST_BYTES else None
        if data is not None and len(data) < length:
            return
        yield offset + 12, data, end
        offset = end


def read_event(data: bytes) -> Found:
    """What an event has for the tab. Raises ValueError if it is not an event."""
    event = _fields(data, (0, len(data)))
    step = event.get(STEP, [0])[-1]
    logs = [_fields(data, span) for span in event.get(SESSION_LOG, [])]
    times = [struct.unpack("<d", data[slice(*span)])[0] for span in event.get(WALL_TIME, [])]
    values: list[tuple[str, list[Span]]] = []
    for span in event.get(SUMMARY, []):
        if data.find(PLUGIN_NAME.encode(), *span) >= 0:  # most events are not the tab's
            values += _values(data, span)
    return Found(
        step - 2**64 if step >= 2**63 else step,
        any(log.get(STATUS, [0])[-1] == SessionLog.START for log in logs),
        max((each for each in times if each == each), default=0.0),
        values,
    )


def _values(data: bytes, summary: Span) -> Iterator[tuple[str, list[Span]]]:
    for value in (_fields(data, span) for span in _fields(data, summary).get(VALUE, [])):
        metadata = [_fields(data, span) for span in value.get(METADATA, [])]
        plugins = [_fields(data, span) for each in metadata for span in each.get(PLUGIN_DATA, [])]
        names = [span for each in plugins for span in each.get(NAME, [])]
        if names and data[slice(*names[-1])] == PLUGIN_NAME.encode():
            tag = data[slice(*value.get(TAG, [(0, 0)])[-1])].decode(errors="backslashreplace")
            tensors = [_fields(data, span) for span in value.get(TENSOR, [])]
            yield tag, [span for each in tensors for span in each.get(STRINGS, [])]


def _fields(data: bytes, span: Span) -> dict[int, list[Any]]:
    """The fields of a message, by number and type: integers as they are, places of all others."""
    found: dict[int, list[Any]] = {}
    at, end = span
    for _ in range(MOST_FIELDS):
        if at == end:
            return found
        key, at = _integer(data, at)
        value: int | Span
        kind = key & 7
        if kind == 0:
            value, at = _integer(data, at)
        elif kind == 2:
            length, start = _integer(data, at)
            value, at = (start, start + length), start + length
        elif kind in (1, 5):
            start = at
            at += 8 if kind == 1 else 4
            value = (start, at)
        else:
            raise ValueError("it is not an event")
        if at > end:
            raise ValueError("it is not an event")
        found.setdefault(key, []).append(value)
    if at == end:
        return found
    raise ValueError(f"it has more than {MOST_FIELDS:,} parts")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """The integer of seven bits a byte that starts here, and where it ends."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value % 2**64, at
    raise ValueError("it is not an event")
