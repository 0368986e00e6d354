"""The corpus of a `TextConfig`: documents, or one text, which is cut: its end is for validation."""

from __future__ import annotations

import codecs
import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice

from rich.filesize import decimal

from common.errors import UserError
from data.corpus import Corpus, Document
from data.decoding import BLOCK, NotText, decoded
from data.documents import Documents, TextConfig, list_skipped, note_on_json
from data.progress import Reading, Stream
from data.readers import READERS
from data.sources import (
    Source,
    copied,
    find,
    is_url,
    local_path,
    readable,
)

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
        return Text(copied(sys.stdin.buffer), "standard input", config.val_fraction)
    if is_pipe:
        with local_path(path).open("rb") as pipe:
            return Text(copied(pipe), path, config.val_fraction)
    sources = _find_files(config)
    single = _single_text(config, sources)
    _check_effects(config, sources, is_single=single is not None)
    if single:
        others = [source.name for source in sources if source is not single]
        local = single
        if single.files or single.suffixes[1]:
            with single.open() as stored:
                local = copied(single.stream(stored))
        return Text(local, single.name, config.val_fraction, others)
    return Documents(config, sources)


def _check_effects(config: TextConfig, sources: Sequence[Source], is_single: bool) -> None:
    """Raise UserError for a setting that does nothing with these files."""
    have_rows = [source.suffixes[0] in READERS for source in sources]
    idle = {
        "field": None if any(have_rows) else "plain text, which has no keys",
        "separator": "rows, each of which is a document" if all(have_rows) else None,
        "deduplicate": "a single text" if is_single else None,
    }
    for setting in fields(config):
        what = idle.get(setting.name)
        if what and getattr(config, setting.name) != setting.default:
            raise UserError(
                f"data.{setting.name}: has no effect on {what}, as {config.path} is; leave it out"
            )


def _find_files(config: TextConfig) -> list[Source]:
    if not config.path:
        raise UserError(
            "data.path: is not set; give a UTF-8 text file, a folder, a glob pattern, "
            "or - for standard input"
        )
    return find(config.path, config.exclude)


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
    with source.open() as stored:
        try:
            return sum(map(len, decoded(source.stream(stored)))) > 0
        except NotText:
            return False


class Text(Corpus):
    """One plain text, of which `val_fraction` of the bytes, at the end, are for validation.

    source: a local file that is not compressed. name: of the text in messages. others: the names of
        files beside it that are not text.

    Raises UserError, naming `data.path`, for a text that is empty or not UTF-8.
    sha256: of the text, without a byte order mark.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        val_fraction: float,
        others: Sequence[str] = (),
    ) -> None:
        self.source, self.name, self.val_fraction = source, name, val_fraction
        with source.open() as file:
            self.sha256, self._start, end = self._check(file)
            self.n_bytes = end
            cut = self._start + int((end - self._start) * (1 - val_fraction))
            file.seek(max(cut - 3, 0))
            before = file.read(cut + 1 - file.tell())
        while before and before[-1] & 0b1100_0000 == 0b1000_0000:  # inside a character
            before, cut = before[:-1], cut - 1
        self._bounds = {"train": (self._start, cut), "val": (cut, end)}
        files = f"reading 1 file, {decimal(end)}; {list_skipped(others)}" if others else ""
        self.description = (files + note_on_json([name])).lstrip() or None

    def _check(self, file: Stream) -> tuple[str, int, int]:
        """The SHA-256 of the text, and where it begins and ends in the file."""
        digest, length = hashlib.sha256(), 0
        try:
            for text in decoded(file, accepts_zeros=True):
                data = text.encode()
                digest.update(data)
                length += len(data)
        except NotText as error:
            raise UserError(f"data.path: {self.name} {error}") from error
        if not length:
            raise UserError(
                f"data.path: {self.name} is empty; give a text with at least one character"
            )
        end = file.tell()
        return digest.hexdigest(), end - length, end

    def fingerprint(self) -> str:
        return f"text:{self.sha256}:{self._bounds['val'][0] - self._start}"

    def documents(self, reading: Reading | None = None) -> Iterator[Document]:
        for split, (start, stop) in self._bounds.items():
            if start < stop:
                yield Document(split, self._read(start, stop, reading))
                reading = None

    def _read(self, start: int, stop: int, reading: Reading | None = None) -> Iterator[str]:
        """The text between two places of the file. Raises UserError if the file has changed."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        with self.source.open(reading) as file:
            file.seek(start)
            while block := file.read(min(BLOCK, stop - file.tell())):
                yield decoder.decode(block)
