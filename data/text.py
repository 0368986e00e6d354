"""A corpus of the user's own UTF-8 text: a file, a folder, a glob, or standard input.

Promises: the exact bytes of the files (no newline is translated; only a byte order mark at the
start of a file is dropped), in sorted order, split into training and validation at a fixed fraction
of the bytes. All files are checked before the first piece is returned, and memory use does not grow
with the text. Knows nothing of tokens.
"""

from __future__ import annotations

import codecs
import glob
import hashlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, ClassVar

from errors import UserError, check_range

_BLOCK = 1 << 22


@dataclass
class TextConfig:
    """Which text, and how much of it is held out.

    path: a file, a folder (all files below it that are not hidden), a glob (also `**`), or `-`.
    val_fraction: the fraction of the bytes, at the end, that is validation; 1 holds out everything.
    separator: inserted between two files, except for the part that the first one already ends with.
    """

    document_end: ClassVar[None] = None  # no text marks the end of a document

    name: str
    path: str | None = field(metadata={"free_text": True, "may_move": True})
    val_fraction: float
    separator: str = field(metadata={"free_text": True})

    def __post_init__(self) -> None:
        check_range("val_fraction", self.val_fraction, above=0, most=1)


class Text:
    """The corpus that a `TextConfig` describes; see `data.corpus.Corpus`.

    Raises UserError, naming `data.path`, for text that is missing, unreadable, empty or not UTF-8.
    """

    def __init__(self, config: TextConfig) -> None:
        if not config.path:
            raise UserError(
                "data.path: is not set; give a UTF-8 text file, a folder, a glob pattern, "
                "or - for standard input"
            )
        separator = config.separator.encode()
        # Parts of the text in order: (file, first byte, length) or (separator, 0, length).
        self._stretches: list[tuple[Path | bytes, int, int]] = []
        self._times: dict[Path, int] = {}  # when each file was last changed
        digest, ending = hashlib.sha256(), b""
        try:
            files, self._spool = _find(config.path)
            for file in files:
                gap = _missing_end(separator, ending) if self._stretches else b""
                self._times[file] = file.stat().st_mtime_ns
                length = 0
                for block in _checked_blocks(file, config.path):
                    if not length:
                        digest.update(gap)
                        ending = b""
                    digest.update(block)
                    length += len(block)
                    ending = (ending + block)[-len(separator) :] if separator else b""
                if length:
                    start = file.stat().st_size - length
                    self._stretches += [(gap, 0, len(gap)), (file, start, length)]
        except OSError as error:
            raise UserError(
                f"data.path: {error.filename or config.path} cannot be read ({error.strerror}); "
                "give a readable UTF-8 text file, folder or glob pattern"
            ) from error

        n_bytes = sum(length for _, _, length in self._stretches)
        if n_bytes == 0:
            name = "standard input" if config.path == "-" else config.path
            raise UserError(f"data.path: {name} is empty; give a text with at least one character")
        cut = int(n_bytes * (1 - config.val_fraction))
        before = b"".join(self._read(cut - 3, cut + 1))
        while before and before[-1] & 0b1100_0000 == 0b1000_0000:  # inside a character
            before, cut = before[:-1], cut - 1
        self._bounds = {"train": (0, cut), "val": (cut, n_bytes)}
        self.sha256 = digest.hexdigest()  # of the whole text

    def fingerprint(self) -> str:
        """Equal for two corpora exactly if both of their splits are equal."""
        return f"text:{self.sha256}:{self._bounds['train'][1]}"

    def pieces(self, split: str) -> Iterator[str]:
        """The text of `split` ("train" or "val") in pieces of a few MB."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        for block in self._read(*self._bounds[split]):
            yield decoder.decode(block)

    def floor_bits(self, split: str) -> float | None:
        """None: the information of free text is unknown."""
        return None

    def _read(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from `start` to `stop` of the whole text, in blocks."""
        at = 0
        for source, first, length in self._stretches:
            begin, end = max(start - at, 0), min(stop - at, length)
            at += length
            if begin >= end:
                continue
            try:
                with self._open(source) as stream:
                    stream.seek(first + begin)
                    while begin < end:
                        block = stream.read(min(_BLOCK, end - begin))
                        if not block:
                            raise OSError("shorter than before")
                        begin += len(block)
                        yield block
            except OSError as error:
                raise UserError(
                    f"data.path: {source!s} changed while it was read; try again"
                ) from error

    def _open(self, source: Path | bytes) -> io.BufferedIOBase:
        if isinstance(source, bytes):
            return io.BytesIO(source)
        if source.stat().st_mtime_ns != self._times[source]:
            raise OSError("changed since it was checked")
        return source.open("rb")


def _find(path: str) -> tuple[list[Path], object]:
    """The files that `path` names, and an object that keeps a temporary one alive.

    Standard input and pipes can be read only once, and the text is needed several times, so they
    are copied to a temporary file, which is deleted with the corpus.
    """
    if path == "-":
        if sys.stdin.isatty():
            raise UserError(
                "data.path: - reads standard input, which is a terminal; pipe the text into it"
            )
        return _spool(sys.stdin.buffer)
    chosen = Path(os.path.expanduser(path))  # noqa: PTH111 (raises nothing, unlike Path's own)
    if chosen.is_dir():
        files = [
            file
            for file in chosen.rglob("*")
            if not any(part.startswith(".") for part in file.relative_to(chosen).parts)
        ]
        problem = "contains no files"
    elif chosen.exists():
        if not chosen.is_file():
            with chosen.open("rb") as stream:
                return _spool(stream)
        return [chosen], None
    else:
        # Unlike Path.glob, this accepts absolute patterns and skips hidden files.
        files = [Path(match) for match in glob.glob(str(chosen), recursive=True)]  # noqa: PTH207
        problem = "matches no files" if glob.has_magic(path) else "does not exist"
    files = sorted((file for file in files if file.is_file()), key=lambda file: file.as_posix())
    if not files:
        raise UserError(
            f"data.path: {path} {problem}; give a UTF-8 text file, folder or glob pattern"
        )
    return files, None


def _spool(stream: BinaryIO) -> tuple[list[Path], object]:
    spool = tempfile.NamedTemporaryFile()  # noqa: SIM115 (closed with the corpus)
    shutil.copyfileobj(stream, spool, _BLOCK)
    spool.flush()
    return [Path(spool.name)], spool


def _checked_blocks(file: Path, path: str) -> Iterator[bytes]:
    """The text of a file in blocks that are not empty, without a byte order mark.

    Raises UserError if it is not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    with file.open("rb") as stream:
        at = len(codecs.BOM_UTF8) if stream.read(3) == codecs.BOM_UTF8 else 0
        stream.seek(at)
        while True:
            block = stream.read(_BLOCK)
            unfinished = len(decoder.getstate()[0])
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                name = "standard input" if path == "-" else file
                raise UserError(
                    f"data.path: {name} is not UTF-8 (byte {at - unfinished + error.start}); "
                    "convert it, or choose other files"
                ) from None
            if not block:
                return
            yield block
            at += len(block)


def _missing_end(separator: bytes, ending: bytes) -> bytes:
    """The part of `separator` that is missing at the end of a text with this ending."""
    held = max(n for n in range(len(separator) + 1) if ending.endswith(separator[:n]))
    return separator[held:]
