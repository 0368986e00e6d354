"""The text of a stream of bytes, which must be UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Any

from data.formats import HEAD, kind_of, wide_encoding

BLOCK = 1 << 22  # bytes that are read at a time


class NotText(Exception):  # noqa: N818
    """A file is not UTF-8 text: what it is, and what to do."""


def decoded(stream: Any, accepts_zeros: bool = False) -> Iterator[str]:
    """The text of a stream in blocks that are not empty, without a byte order mark. Raises NotText
    where it is not UTF-8, and for a zero byte, which binary files have, unless it is accepted."""
    decoder, at, begun, head = codecs.getincrementaldecoder("utf-8")(), 0, False, b""
    while block := stream.read(BLOCK):
        if not at:
            head = block[:HEAD]
            _check_head(head, is_utf8=True)
        text = _decode(decoder, block, at, head)
        if b"\0" in block and not accepts_zeros:
            raise NotText("has a zero byte")
        at += len(block)
        text = text if begun else text.removeprefix("\ufeff")
        if text:
            begun = True
            yield text
    _decode(decoder, b"", at, head)


def _check_head(head: bytes, is_utf8: bool) -> None:
    if kind := kind_of(head):
        raise NotText(kind)
    if name := wide_encoding(head, is_utf8):
        raise NotText(
            f"is {name}, and not UTF-8; convert it first: iconv -f {name} -t UTF-8 FILE > NEW"
        )


def _decode(decoder: codecs.IncrementalDecoder, block: bytes, at: int, head: bytes) -> str:
    unfinished = len(decoder.getstate()[0])
    try:
        return decoder.decode(block, final=not block)
    except UnicodeDecodeError as error:
        _check_head(head, is_utf8=False)
        place = f"byte {at - unfinished + error.start:,}"
        raise NotText(f"is not UTF-8 ({place}); convert it, or choose other files") from None
