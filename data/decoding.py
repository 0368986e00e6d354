"""The text of a stream of bytes, which must be UTF-8; or what else it looks like."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

BLOCK = 1 << 22  # bytes that are read at a time
HEAD, MIN_HEAD = 1 << 12, 32  # bytes that are looked at; with fewer, no encoding is guessed
MARKS = {"UTF-32LE": codecs.BOM_UTF32_LE, "UTF-32BE": codecs.BOM_UTF32_BE,
         "UTF-16LE": codecs.BOM_UTF16_LE, "UTF-16BE": codecs.BOM_UTF16_BE}  # fmt: skip
# How files of gzip, bzip2, xz, zstandard, zip and Parquet begin.
PACKED = re.compile(
    rb"\x1f\x8b|BZh[1-9]1AY|\xfd7zXZ|\x28\xb5\x2f\xfd|PK\x03\x04|PAR1\x15", re.DOTALL
)
CONTROLS = bytes({*range(32)} - {*b"\t\n\f\r\x1b"})


class NotText(Exception):  # noqa: N818
    """A file is not UTF-8 text: what it is, and what to do."""


def decoded(stream: Any) -> Iterator[str]:
    """The text of a stream in blocks that are not empty. Raises NotText where it is not UTF-8."""
    decoder, at = codecs.getincrementaldecoder("utf-8")(), 0
    for block in chain(iter(lambda: stream.read(BLOCK), b""), [b""]):  # the last one ends the text
        unfinished = decoder.getstate()[0]
        if not at and PACKED.match(block):
            raise NotText("is compressed, or a table, and no text; give the text that is in it")
        if not at and wide_encoding(block[:HEAD]):
            raise NotText(not_utf8(block[:HEAD]))
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            place = f" (byte {at - len(unfinished) + error.start:,})"
            raise NotText(not_utf8(error.object, error.start, place)) from None
        if text:
            yield text
        at += len(block)


def not_utf8(data: bytes, start: int = 0, place: str = "") -> str:
    """What a file is whose bytes are not UTF-8 from `start` on, and what to do."""
    around = data[max(0, start - HEAD // 2) :][:HEAD]
    if name := wide_encoding(around):
        return f"is {name}, and not UTF-8; {convert(name)}"
    if is_western(around):
        return f"is not UTF-8{place}; it looks like Windows-1252: {convert('WINDOWS-1252')}"
    return f"is not UTF-8{place}; convert it, or choose other files"


def convert(name: str) -> str:
    """How to convert a file in the encoding `name`."""
    return f"convert it first: iconv -f {name} -t UTF-8 FILE > NEW"


def is_western(part: bytes) -> bool:
    """Whether bytes that are not UTF-8 look like a text in Windows-1252: without control
    characters, with letters and marks of western European languages among many of ASCII."""
    try:
        text = part.decode("cp1252")
    except UnicodeDecodeError:
        return False
    marks = sum(letter > "\x7f" for letter in text)
    return not set(CONTROLS) & set(part) and marks <= 0.3 * len(text)


def wide_encoding(head: bytes) -> str | None:
    """The UTF-16 or UTF-32 encoding of the beginning of a text: by its mark, or as most upper
    halves of its characters are below 32, as those of many scripts; None if it has neither. A few
    NULs are a text's own."""
    for name, mark in MARKS.items():
        if head.startswith(mark):
            return name
    for name, upper in (("UTF-16LE", head[1::2]), ("UTF-16BE", head[::2])):
        low = sum(byte < 32 for byte in upper)
        if len(head) >= MIN_HEAD and low > 0.75 * len(upper) and set(CONTROLS) & set(upper):
            return name
    return None
