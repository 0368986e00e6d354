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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from errors import UserError, check_range
from files import real_path

_BLOCK = 1 << 22


@dataclass
class TextConfig:
    """Which text, and how much of it is held out.

    path: a file, a folder (all files below it that are not hidden), a glob (also `**`), or `-`.
    val_fraction: the fraction of the bytes, at the end, that is validation; 1 holds out everything.
    separator: inserted between two files, except for the part that the first one already ends with.
    exclude: globs, separated by commas; files of a folder or glob are left out if one matches their
        path below the folder, or a part of it. Older runs have none.
    """

    document_end: ClassVar[None] = None  # no text marks the end of a document

    name: str
    path: str | None = field(metadata={"free_text": True, "may_move": True})
    val_fraction: float
    separator: str = field(metadata={"free_text": True})
    exclude: str | None = field(default=None, metadata={"free_text": True})

    def __post_init__(self) -> None:
        check_range("val_fraction", self.val_fraction, above=0, most=1)


class Text:
    """The corpus that a `TextConfig` describes; see `data.corpus.Corpus`.

    In a folder or glob, files that are not UTF-8 text are skipped: `description` lists them.

    Raises UserError, naming `data.path`, for text that is missing, unreadable, empty or not UTF-8.

    sha256: of the whole text.
    """

    def __init__(self, config: TextConfig) -> None:
        if not config.path:
            raise UserError(
                "data.path: is not set; give a UTF-8 text file, a folder, a glob pattern, "
                "or - for standard input"
            )
        # Parts of the text in order: (file, first byte, length) or (separator, 0, length).
        self._stretches: list[tuple[Path | bytes, int, int]] = []
        self._times: dict[Path, int] = {}  # when each file was last changed
        try:
            files, self._spool = _find(config)
            is_named = bool(self._spool) or files == [Path(os.path.expanduser(config.path))]  # noqa: PTH111
            self.sha256, skipped = self._check(files, config.separator.encode(), is_named)
        except RecursionError:
            raise UserError("data.path: has too many parts; give a shorter glob pattern") from None
        except OSError as error:
            raise UserError(
                f"data.path: {error.filename or config.path} cannot be read ({error.strerror}); "
                "give a readable UTF-8 text file, folder or glob pattern"
            ) from error
        name = "standard input" if config.path == "-" else config.path
        n_bytes = sum(length for _, _, length in self._stretches)
        if is_named and skipped:
            ((file, problem),) = skipped.items()
            raise UserError(
                f"data.path: {name if self._spool else file} is not UTF-8 ({problem}); convert it, "
                "or choose other files"
            )
        if n_bytes == 0:
            problem = "contains no UTF-8 text" if skipped else "is empty"
            raise UserError(f"data.path: {name} {problem}; give a text with at least one character")
        cut = int(n_bytes * (1 - config.val_fraction))
        before = b"".join(self._read(cut - 3, cut + 1))
        while before and before[-1] & 0b1100_0000 == 0b1000_0000:  # inside a character
            before, cut = before[:-1], cut - 1
        self._bounds = {"train": (0, cut), "val": (cut, n_bytes)}
        self.description = _describe(len(files), n_bytes, list(map(str, skipped)))

    def _check(
        self, files: Sequence[Path], separator: bytes, is_named: bool
    ) -> tuple[str, dict[Path, str]]:
        """Check all files, and note which parts make up the text. Returns the SHA-256 of the text,
        and why files are skipped."""
        digest, ending, skipped = hashlib.sha256(), b"", {}
        for file in files:
            gap = _missing_end(separator, ending) if self._stretches else b""
            self._times[file] = file.stat().st_mtime_ns
            continued = digest.copy()
            try:
                blocks = _text_blocks(file, is_named)
                length, own_ending = _hash(continued, gap, blocks, keep=len(separator))
            except NotText as error:
                skipped[file] = str(error)
                continue
            if length:
                start = file.stat().st_size - length
                self._stretches += [(gap, 0, len(gap)), (file, start, length)]
                digest, ending = continued, own_ending
        return digest.hexdigest(), skipped

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


def _find(config: TextConfig) -> tuple[list[Path], object]:
    """The files that the settings name, and an object that keeps a temporary one alive.

    Standard input and pipes can be read only once, and the text is needed several times, so they
    are copied to a temporary file, which is deleted with the corpus.
    """
    path = config.path or ""
    if path == "-":
        if sys.stdin.isatty():
            raise UserError(
                "data.path: - reads standard input, which is a terminal; pipe the text into it"
            )
        return _spool(sys.stdin.buffer)
    chosen = Path(os.path.expanduser(path))  # noqa: PTH111 (raises nothing, unlike Path's own)
    if chosen.is_fifo():
        with chosen.open("rb") as stream:
            return _spool(stream)
    if chosen.is_file():
        return [chosen], None
    folder = chosen if chosen.is_dir() else Path()
    if chosen.is_dir():
        files = [
            file
            for file in chosen.rglob("*")
            if not any(part.startswith(".") for part in file.relative_to(chosen).parts)
        ]
        problem = "contains no files"
    else:
        # Unlike Path.glob, this accepts absolute patterns and skips hidden files.
        files = [Path(match) for match in glob.glob(str(chosen), recursive=True)]  # noqa: PTH207
        problem = "matches no files" if glob.has_magic(path) else "does not exist"
        if chosen.exists():
            problem = "is a device"
    globs = [each.strip() for each in (config.exclude or "").split(",") if each.strip()]
    if found := [each for each in files if each.is_file()]:
        problem += " that data.exclude leaves"
    kept = [each for each in found if not _is_excluded(os.path.relpath(each, folder), globs)]
    if not kept:
        raise UserError(
            f"data.path: {path} {problem}; give a UTF-8 text file, folder or glob pattern"
        )
    # Links can lead to a file again, or in circles: it counts once, under its shortest path.
    once: dict[Path, Path] = {}
    for file in sorted(kept, key=lambda file: (len(file.parts), file.as_posix())):
        once.setdefault(real_path(file), file)
    return sorted(once.values(), key=lambda file: file.as_posix()), None


def _is_excluded(path: str, globs: Sequence[str]) -> bool:
    names = (path, *Path(path).parts)
    return any(fnmatch(name, each) for name in names for each in globs)


def _spool(stream: BinaryIO) -> tuple[list[Path], object]:
    folder = tempfile.TemporaryDirectory()
    with (spool := Path(folder.name, "text")).open("wb") as copy:
        shutil.copyfileobj(stream, copy, _BLOCK)
    return [spool], folder


class NotText(Exception):  # noqa: N818
    """A file is not UTF-8 text."""


def _text_blocks(file: Path, is_named: bool) -> Iterator[bytes]:
    """The text of a file in blocks that are not empty, without a byte order mark.

    Raises NotText for bytes that are not UTF-8, and unless the file itself is named, for zero
    bytes, which binary files have.
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
                raise NotText(f"byte {at - unfinished + error.start}") from None
            if not is_named and b"\0" in block:
                raise NotText("a zero byte")
            if not block:
                return
            yield block
            at += len(block)


def _hash(digest: Any, gap: bytes, blocks: Iterator[bytes], keep: int) -> tuple[int, bytes]:
    """Hash a text and the gap before it; if the text is empty, hash neither. Returns the length of
    the text and its last `keep` bytes."""
    length, ending = 0, b""
    for block in blocks:
        digest.update(block if length else gap + block)
        length += len(block)
        ending = (ending + block)[-keep:] if keep else b""
    return length, ending


def _describe(n_files: int, n_bytes: int, skipped: Sequence[str]) -> str | None:
    """Which of several files are read; at most ten of those that are not are named."""
    if n_files == 1:
        return None
    text = f"reading {n_files - len(skipped):,} files, {n_bytes / 1e6:,.1f} MB"
    if skipped:
        more = f" and {len(skipped) - 10:,} more" if len(skipped) > 10 else ""
        text += f"; skipped {len(skipped):,} that are not UTF-8: {', '.join(skipped[:10])}{more}"
    return text


def _missing_end(separator: bytes, ending: bytes) -> bytes:
    """The part of `separator` that is missing at the end of a text with this ending."""
    held = max(n for n in range(len(separator) + 1) if ending.endswith(separator[:n]))
    return separator[held:]
