"""A corpus of the user's own text: one text, or documents.

Which split a document belongs to depends on its own text alone. One plain text is the case of one
document: it is cut, and its end is for validation.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from dataclasses import field as _field
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, ClassVar

from rich.filesize import decimal

from data.corpus import Corpus, Document, text_of
from data.progress import Reading
from data.readers import READERS, decoded, read_documents
from data.sources import BLOCK, NotText, Source, find, is_url, local_path, local_source, readable
from errors import UserError, check_range, counted, printable

# The characters at the start of a document that decide to which split it belongs. The first part of
# a document is at least as long, if it is not all of it.
FIRST = 1 << 16
SAMPLE = 1 << 28  # characters of documents on which a tokenizer is trained
SIBLINGS = 64  # files of which one may be the only text
SMALL = 1 << 20  # bytes of a file that can share a shard
ALONE = 64  # as many small files have a shard each


@dataclass
class TextConfig:
    """Which text, and how much of it is held out: see configs/data/text.yaml."""

    document_end: ClassVar[None] = None  # no text marks the end of a document

    name: str
    path: str | None = _field(metadata={"free_text": True, "may_move": True})
    val_fraction: float
    separator: str | None = _field(metadata={"free_text": True})
    field: str = _field(metadata={"free_text": True})
    exclude: str | None = _field(default=None, metadata={"free_text": True})
    deduplicate: bool = False

    def __post_init__(self) -> None:
        check_range("val_fraction", self.val_fraction, above=0, most=1)
        if self.separator == "":
            raise ValueError("separator: is empty; give a text, or null for one document a file")

    @property
    def divider(self) -> str | None:
        r"""The separator of documents, in which `\n` and `\t` stand for characters that are hard to
        type."""
        if self.separator is None:
            return None
        return self.separator.replace("\\n", "\n").replace("\\t", "\t")

    @property
    def rules(self) -> str:
        """What decides which documents a file has, and to which split they belong."""
        return json.dumps([self.field, self.divider, self.val_fraction])


def open_text(config: TextConfig) -> Corpus:
    """The corpus of a `TextConfig`: one plain text that is not divided is a `Text`.

    Raises UserError, naming `data.path`, for files that are missing or cannot be used.
    """
    path = config.path or ""
    if path == "-":
        if sys.stdin.isatty():
            raise UserError(
                "data.path: - reads standard input, which is a terminal; pipe the text into it"
            )
        return Text(sys.stdin.buffer, "standard input", config.val_fraction)
    with readable(path):
        if not is_url(path) and local_path(path).is_fifo():
            with local_path(path).open("rb") as pipe:
                return Text(pipe, path, config.val_fraction)
    sources = _find_files(config)
    if single := _single_text(config, sources):
        others = [each.name for each in sources if each is not single]
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
    if any(PurePosixPath(each.name).name == "shards.json" for each in sources):
        raise UserError(
            f"data.path: {config.path} has shards that prepare.py made; to train on them, give "
            "their folder itself as a local path, otherwise leave them out with data.exclude"
        )
    return sources


def _single_text(config: TextConfig, sources: Sequence[Source]) -> Source | None:
    """The only plain text of these files; None if there are several, or other documents."""
    if config.separator is not None or any(each.suffixes[0] in READERS for each in sources):
        return None
    if len(sources) == 1:
        return sources[0]
    if len(sources) > SIBLINGS or any(each.files for each in sources):
        return None
    texts = list(islice((each for each in sources if _is_text(each)), 2))
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

    marks_ends = False
    deduplicate = False

    def __init__(
        self,
        source: Source | BinaryIO,
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

    def _spool(self, stream: Any) -> Path:
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


class Documents:
    """The documents of some files. An end token separates them."""

    marks_ends = True

    def __init__(self, config: TextConfig, sources: Sequence[Source]) -> None:
        self.config, self.sources = config, sources
        self.deduplicate, self.val_fraction = config.deduplicate, config.val_fraction
        self.n_bytes = sum(each.size or 0 for each in sources)
        files = f"reading documents of {counted(len(sources), 'file')}, {decimal(self.n_bytes)}"
        self.description: str | None = files + note_on_json(each.name for each in sources)

    def fingerprint(self) -> str:
        """Changes when a file changes, or a setting that decides what a document is."""
        known = [self.config.rules, *(each.fingerprint for each in self.sources)]
        return f"documents:{hashlib.sha256(json.dumps(known).encode()).hexdigest()}"

    def shards(self) -> Sequence[Documents]:
        """A shard for each file; small ones can share one. Adding a file changes at most one shard,
        unless the number of small files reaches the next power of two."""
        small = [each for each in self.sources if (each.size or SMALL) < SMALL]
        groups = [[each] for each in self.sources]
        if len(small) > ALONE:
            groups = [[each] for each in self.sources if each not in small]
            n_shared = 1 << (len(small) // ALONE).bit_length()
            shared: list[list[Source]] = [[] for _ in range(n_shared)]
            for each in small:  # by its own name: the folder may be moved
                shared[hash_of(Path(each.name).name) % n_shared].append(each)
            groups += filter(None, shared)
        return [Documents(self.config, each) for each in groups]

    def documents(
        self, reading: Reading | None = None, skipped: dict[str, str] | None = None
    ) -> Iterator[Document]:
        """Those of which the hash of the beginning is below `val_fraction` are for validation."""
        field, separator = self.config.field, self.config.divider
        limit = int(self.config.val_fraction * (1 << 64))
        for source in self.sources:
            for parts in read_documents(source, field, separator, reading, skipped):
                first = next(parts)
                split = "val" if hash_of(first[:FIRST]) < limit else "train"
                yield Document(split, chain([first], parts))

    def training_text(self) -> Iterator[str]:
        """The first training documents of each file: of all files together, about `SAMPLE`
        characters."""
        share = SAMPLE // len(self.sources)
        for source in self.sources:
            left = share
            for text in text_of(Documents(self.config, [source]), "train"):
                yield repaired(text)
                yield "\n"  # no word continues in the next document
                left -= len(text)
                if left < 0:
                    break

    def document_bits(self) -> None:
        """None: the information of free text is unknown."""


def hash_of(text: str) -> int:
    """64 bits of the BLAKE2b of a text."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def repaired(text: str) -> str:
    """The text with U+FFFD for lone surrogates, which JSON can spell and UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def list_skipped(names: Sequence[str]) -> str:
    """Which files are skipped; at most ten are named. Empty if there are none."""
    if not names:
        return ""
    shown = [printable(each) for each in sorted(names)[:10]]
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    files = counted(len(names), "file")
    return f"skipped {files} (not UTF-8 text): {', '.join(shown)}{more}"


def note_on_json(names: Iterable[str]) -> str:
    """What to say if there are `.json` files, in which one would expect documents."""
    count = sum(name.lower().endswith(".json") for name in names)
    if not count:
        return ""
    return (
        f" (note: the content of {counted(count, '.json file')} is plain text here; for documents, "
        "write one JSON object a line to a .jsonl file)"
    )
