"""A corpus of the user's own UTF-8 text: a file, a folder, a glob, or standard input.

Promises: the exact bytes of the files (no newline is translated; only a byte order mark at the
start of a file is dropped), in sorted order, split into training and validation at a fixed fraction
of the bytes. All files are checked before the first piece is returned, and memory use does not grow
with the text. Knows nothing of tokens.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as _field
from pathlib import Path
from typing import Any, ClassVar

from rich.filesize import decimal

from data.remote import BLOCK
from data.sources import NotText, Source, find_files, readable
from errors import UserError, check_range, counted


@dataclass
class TextConfig:
    """Which text, and how much of it is held out.

    path: a file, a folder (all files below it that are neither hidden nor
        in a run), a glob (also `**`), a URL of one of these that fsspec can open, `-` for standard
        input, or a folder that prepare.py made.
    val_fraction: the fraction of the documents that is validation (1 holds out everything): of a
        single text that is not divided, the fraction of its bytes, at the end.
    separator: what divides a plain text into documents; None: each file is one.
    exclude: globs, separated by commas; files of a folder or glob are left out if one matches their
        path below the folder, or a part of it. Older runs have none.
    field: the key of a `.jsonl` line, or the column of a `.parquet` file, that has the text.
        None: all files are plain text, and joined with `separator` between them.
    deduplicate: only the first of several equal documents is kept.
    """

    document_end: ClassVar[None] = None  # no text marks the end of a document

    name: str
    path: str | None = _field(metadata={"free_text": True, "may_move": True})
    val_fraction: float
    separator: str | None = _field(metadata={"free_text": True})
    exclude: str | None = _field(default=None, metadata={"free_text": True})
    field: str | None = _field(default=None, metadata={"free_text": True})
    deduplicate: bool = False

    def __post_init__(self) -> None:
        check_range("val_fraction", self.val_fraction, above=0, most=1)
        if self.separator == "" and self.field is not None:
            raise ValueError("separator: is empty; give a text, or null for one document a file")

    @property
    def rules(self) -> str:
        """What decides which documents a file has, and to which split they belong."""
        return json.dumps([self.field, self.divider, self.val_fraction])

    @property
    def divider(self) -> str | None:
        r"""The separator of documents, in which `\n` and `\t` stand for characters that are hard to
        type."""
        if self.separator is None:
            return None
        return self.separator.replace("\\n", "\n").replace("\\t", "\t")


class Text:
    """The corpus that a `TextConfig` describes; see `data.corpus.Corpus`.

    In a folder or glob, files that are not UTF-8 text are skipped: `description` lists them.

    source: the file to read, if it has been found already; it may be remote or compressed.
    others: the names of files beside it that are not text.

    Raises UserError, naming `data.path`, for text that is missing, unreadable, empty or not UTF-8.

    sha256: of the whole text.
    """

    def __init__(
        self, config: TextConfig, source: Source | None = None, others: Sequence[str] = ()
    ) -> None:
        if not config.path:
            raise UserError(
                "data.path: is not set; give a UTF-8 text file, a folder, a glob pattern, "
                "or - for standard input"
            )
        # Parts of the text in order: (file, first byte, length) or (separator, 0, length).
        self._stretches: list[tuple[Path | bytes, int, int]] = []
        self._times: dict[Path, int] = {}  # when each file was last changed
        try:
            files, self._spool = _find(config, source)
            is_named = bool(self._spool) or files == [Path(os.path.expanduser(config.path))]  # noqa: PTH111
            separator = (config.separator or "").encode()
            self.sha256, skipped = self._check(files, separator, is_named)
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
        described = _describe(len(files) + len(others), n_bytes, [*map(str, skipped), *others])
        names = [source.name] if source else map(str, files)
        self.description = ((described or "") + note_on_json(names)).lstrip() or None

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

    def document_bits(self, split: str) -> None:
        """None: the information of free text is unknown."""
        return

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
                        block = stream.read(min(BLOCK, end - begin))
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


def _find(config: TextConfig, source: Source | None) -> tuple[list[Path], object]:
    """The files that the settings name, or that of a `source`; and what keeps a temporary one.

    Standard input and pipes can be read only once, and the text is needed several times, so they
    are copied to a temporary file, which is deleted with the corpus. So are files that are remote
    or compressed.
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
    if source is None:
        return find_files(path, config.exclude), None
    if source.files is None and not source.suffixes[1]:
        return [Path(source.name)], None
    with readable(source.name), source.open() as stored:
        return _spool(source.stream(stored))


def _spool(stream: Any) -> tuple[list[Path], object]:
    folder = tempfile.TemporaryDirectory()
    with (spool := Path(folder.name, "text")).open("wb") as copy:
        shutil.copyfileobj(stream, copy, BLOCK)
    return [spool], folder


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
            block = stream.read(BLOCK)
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
    text = f"reading {n_files - len(skipped):,} files, {decimal(n_bytes)}"
    if skipped:
        more = f" and {len(skipped) - 10:,} more" if len(skipped) > 10 else ""
        text += f"; skipped {len(skipped):,} that are not UTF-8: {', '.join(skipped[:10])}{more}"
    return text


def note_on_json(names: Iterable[str]) -> str:
    """What to say if there are `.json` files, in which one would expect documents."""
    count = sum(name.lower().endswith(".json") for name in names)
    if not count:
        return ""
    return (
        f" (note: the content of {counted(count, '.json file')} is plain text here; for documents, "
        "write one JSON object a line to a .jsonl file)"
    )


def _missing_end(separator: bytes, ending: bytes) -> bytes:
    """The part of `separator` that is missing at the end of a text with this ending."""
    held = max(n for n in range(len(separator) + 1) if ending.endswith(separator[:n]))
    return separator[held:]
