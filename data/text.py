"""The corpus of a `TextConfig`: documents, or one text, which is cut: its end is for validation."""

from __future__ import annotations

import codecs
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path, PurePosixPath

from rich.filesize import decimal

from data.corpus import Corpus, Document
from data.documents import Documents, TextConfig, list_skipped, note_on_json
from data.progress import Reading
from data.readers import READERS, decoded
from data.sources import (
    BLOCK,
    NotText,
    Source,
    Stream,
    find,
    is_url,
    local_path,
    local_source,
    readable,
)
from errors import UserError

SIBLINGS = 64  # files of which one may be the only text


def open_text(config: TextConfig) -> Corpus:
    """The corpus of a `TextConfig`: one plain text that is not divided is a `Text`.

    Raises UserError, naming `data.path`, for files that are missing or cannot be used.
    """
    path = config.path or ""
    with readable(path):
        is_pipe = not is_url(path) and local_path(path).is_fifo()
    for name in ("separator", "deduplicate"):
        if (path == "-" or is_pipe) and getattr(config, name):
            raise UserError(
                f"data.{name}: has no effect on standard input or a pipe, which is one text; write "
                "it to a file, or leave the setting out"
            )
    if path == "-":
        if sys.stdin.isatty():
            raise UserError(
                "data.path: - reads standard input, which is a terminal; pipe the text into it"
            )
        return Text(sys.stdin.buffer, "standard input", config.val_fraction)
    if is_pipe:
        with local_path(path).open("rb") as pipe:
            return Text(pipe, path, config.val_fraction)
    sources = _find_files(config)
    if single := _single_text(config, sources):
        others = [source.name for source in sources if source is not single]
        return Text(single, single.name, config.val_fraction, others)
    return Documents(config, sources)


def open_documents(config: TextConfig) -> Documents:
    """The corpus of a `TextConfig`. Raises as `open_text`, and for a single text."""
    sources = _find_files(config)
    if _single_text(config, sources):
        raise UserError(
            "data.path: is a single text, which train.py reads as it is; give files of documents, "
            "or divide the text with data.separator"
        )
    return Documents(config, sources)


def _find_files(config: TextConfig) -> list[Source]:
    if not config.path:
        raise UserError(
            "data.path: is not set; give a UTF-8 text file, a folder, a glob pattern, "
            "or - for standard input"
        )
    sources = find(config.path, config.exclude)
    if any(PurePosixPath(source.name).name == "shards.json" for source in sources):
        raise UserError(
            f"data.path: {config.path} has shards that prepare.py made; to train on them, give "
            "their folder itself as a local path, otherwise leave them out with data.exclude"
        )
    return sources


def _single_text(config: TextConfig, sources: Sequence[Source]) -> Source | None:
    """The only plain text of these files; None if there are several, or other documents."""
    if config.separator is not None or any(source.suffixes[0] in READERS for source in sources):
        return None
    if len(sources) == 1:
        return sources[0]
    if len(sources) > SIBLINGS or any(source.files for source in sources):
        return None
    texts = list(islice((source for source in sources if _is_text(source)), 2))
    return texts[0] if len(texts) == 1 else None


def _is_text(source: Source) -> bool:
    """Whether a file is UTF-8 to its end, and not empty."""
    with readable(source.name), source.open() as stored:
        try:
            return sum(map(len, decoded(source.stream(stored)))) > 0
        except NotText:
            return False


class Text:
    """One plain text, of which `val_fraction` of the bytes, at the end, are for validation.

    source: a file, or a stream that is read to its end. Its text is needed several times: that of a
        stream, or of a file that is remote or compressed, is copied to a temporary file, which is
        deleted with the corpus.
    name: of the text in messages. others: the names of files beside it that are not text.

    Raises UserError, naming `data.path`, for a text that is empty or not UTF-8.
    sha256: of the text, without a byte order mark.
    """

    adds_eos = False
    deduplicate = False

    def __init__(
        self,
        source: Source | Stream,
        name: str,
        val_fraction: float,
        others: Sequence[str] = (),
    ) -> None:
        self.source, self.name, self.val_fraction = source, name, val_fraction
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        with readable(name):
            self._file = self._local_copy()
            self.sha256, self._start, end = self._check()
            self.n_bytes = end
            cut = self._start + int((end - self._start) * (1 - val_fraction))
            with self._file.open("rb") as file:
                file.seek(max(cut - 3, 0))
                before = file.read(cut + 1 - file.tell())
        while before and before[-1] & 0b1100_0000 == 0b1000_0000:  # inside a character
            before, cut = before[:-1], cut - 1
        self._bounds = {"train": (self._start, cut), "val": (cut, end)}
        files = f"reading 1 file, {decimal(end)}; {list_skipped(others)}" if others else ""
        self.description = (files + note_on_json([name])).lstrip() or None

    def _local_copy(self) -> Path:
        if isinstance(self.source, Source):
            if self.source.files is None and not self.source.suffixes[1]:
                return Path(self.source.name)
            with self.source.open() as stored:
                return self._spool(self.source.stream(stored))
        return self._spool(self.source)

    def _spool(self, stream: Stream) -> Path:
        self._folder = tempfile.TemporaryDirectory()
        with (spool := Path(self._folder.name, "text")).open("wb") as copy:
            shutil.copyfileobj(stream, copy, BLOCK)
        self.source = local_source(spool)
        return spool

    def _check(self) -> tuple[str, int, int]:
        """The SHA-256 of the text, and where it begins and ends in the file."""
        digest, length = hashlib.sha256(), 0
        try:
            with self._file.open("rb") as file:
                for text in decoded(file, accepts_zeros=True):
                    data = text.encode()
                    digest.update(data)
                    length += len(data)
        except NotText as error:
            raise UserError(
                f"data.path: {self.name} is not UTF-8 ({error}); convert it, or choose other files"
            ) from error
        if not length:
            raise UserError(
                f"data.path: {self.name} is empty; give a text with at least one character"
            )
        end = self._file.stat().st_size
        return digest.hexdigest(), end - length, end

    def fingerprint(self) -> str:
        return f"text:{self.sha256}:{self._bounds['val'][0] - self._start}"

    def shards(self) -> Sequence[Corpus]:
        return [self]

    def documents(
        self, reading: Reading | None = None, skipped: dict[str, str] | None = None
    ) -> Iterator[Document]:
        for split, (start, stop) in self._bounds.items():
            if start < stop:
                yield Document(split, self._read(start, stop, reading))
                reading = None

    def training_text(self) -> Iterator[str]:
        return self._read(*self._bounds["train"])

    def document_bits(self) -> None:
        """None: the information of free text is unknown."""

    def _read(self, start: int, stop: int, reading: Reading | None = None) -> Iterator[str]:
        """The text between two places of the file. Raises UserError if the file has changed."""
        assert isinstance(self.source, Source)
        decoder = codecs.getincrementaldecoder("utf-8")()
        with readable(self.name), self._file.open("rb") as file:
            self.source.check_unchanged()
            with reading.follow(self.source, file) if reading else nullcontext():
                file.seek(start)
                while block := file.read(min(BLOCK, stop - file.tell())):
                    yield decoder.decode(block)
            self.source.check_unchanged()
