"""Your own text: UTF-8 files, byte for byte.

One file is one text, whose end is for validation. Several files, or the parts of files between
separators, are documents, each in the split that its beginning decides.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rich.filesize import decimal

from common.errors import UserError, check_range, pluralize, print, printable
from data.corpus import (
    SAMPLE,
    Corpus,
    CorpusConfig,
    Document,
    cut_at,
    sample_of,
    split_by_hash,
    text_of,
)
from data.decoding import NotText, decoded
from data.files import find_files, local_path, readable

ROWS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv")  # text files of which each row is a document


@dataclass
class TextConfig(CorpusConfig):
    """Which text, and how much of it is held out: see configs/data/text.yaml."""

    path: str | None
    separator: str | None
    val_fraction: float

    def __post_init__(self) -> None:
        check_range("val_fraction", self.val_fraction, above=0, most=1)
        if self.separator == "":
            raise ValueError("separator: is empty; give a text, or null for one document a file")

    def undivided(self) -> TextConfig:
        return replace(self, val_fraction=1.0)

    def without_trust(self) -> TextConfig:
        if self.path and local_path(self.path).is_dir():  # it can be large, such as the whole disk
            name = printable(self.path)
            print(f"note: reading the text that the run names: {name}", file=sys.stderr)
        return self

    @property
    def divider(self) -> str | None:
        r"""The separator of documents, in which `\n`, `\r` and `\t` stand for characters that are
        hard to type."""
        if self.separator is None:
            return None
        return self.separator.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")


def open_text(config: TextConfig) -> Corpus:
    """The corpus of a `TextConfig`. Raises UserError, naming `data.path`, for files that are
    missing or not UTF-8; of several, those that are not are skipped."""
    if not config.path:
        raise UserError("data.path: is not set; give a UTF-8 text file, a folder or a glob pattern")
    paths = find_files(config.path)
    if len(paths) == 1:
        files, skipped = [check_file(paths[0])], ""
    else:
        files, skipped = _check_files(paths)
    if not files:
        raise UserError(f"data.path: {config.path} has no UTF-8 text ({skipped}); give other files")
    notes = [skipped] if skipped else []
    if rows := sum(file.path.suffix.lower() in ROWS for file in files):
        notes.append(f"{pluralize(rows, 'file')} of rows as plain text (data=dataset divides them)")
    if len(files) == 1 and config.separator is None:
        corpus: Corpus = Text(files[0], config.val_fraction)
    else:
        corpus = Documents(config, files)
    if notes or corpus.adds_eos:
        reading = f"reading {pluralize(len(files), 'file')}, {decimal(corpus.n_bytes)}"
        corpus.description = "; ".join([reading, *notes])
    return corpus


class TextFile(NamedTuple):
    """A file that is UTF-8 and not empty. size, sha256: of its bytes."""

    path: Path
    size: int
    sha256: str

    def read(self) -> Iterator[str]:
        """The text in blocks. Raises UserError at its end if these are not the bytes of `sha256`:
        whatever is made of a text is stored under its checksum."""
        with readable(self.path), self.path.open("rb") as file:
            stream = _Hashed(file)
            with suppress(NotText):
                yield from decoded(stream)
            if stream.sha256() != self.sha256:
                raise UserError(
                    f"data.path: {self.path} was changed while it was read; start again"
                )


class _Hashed:
    """A file that hashes what is read of it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        block = self._file.read(size)
        self._hash.update(block)
        return block

    def sha256(self) -> str:
        return self._hash.hexdigest()


def check_file(path: Path) -> TextFile:
    """Raises UserError, naming `data.path`, for a file that is empty or not UTF-8."""
    try:
        return _check_file(path)
    except NotText as error:
        raise UserError(f"data.path: {path} {error}") from error


def _check_file(path: Path) -> TextFile:
    with readable(path), path.open("rb") as file:
        stream = _Hashed(file)
        if not sum(1 for _ in decoded(stream)):
            raise NotText("is empty; give a text with at least one character")
        return TextFile(path, file.tell(), stream.sha256())


def _check_files(paths: Iterable[Path]) -> tuple[list[TextFile], str]:
    """Those that are text, and what to say of the others, of which at most ten are named."""
    files, others = [], []
    for path in paths:
        try:
            files.append(_check_file(path))
        except NotText:
            others.append(printable(str(path)))
    if not others:
        return files, ""
    more = f" and {len(others) - 10:,} more" if len(others) > 10 else ""
    names = ", ".join(others[:10]) + more
    return files, f"skipped {pluralize(len(others), 'file')} (not UTF-8 text, or empty): {names}"


class Text(Corpus):
    """One text, of which `val_fraction` of the bytes, at the end, are for validation."""

    def __init__(self, file: TextFile, val_fraction: float) -> None:
        self.file, self.n_bytes = file, file.size
        self._cut = int(file.size * (1 - val_fraction))

    def fingerprint(self) -> str:
        return f"text:{self.file.sha256}:{self._cut}"

    def documents(self) -> Iterator[Document]:
        text = self.file.read()
        train, val = cut_at(text, self._cut)
        yield Document("train", train)
        yield Document("val", val)
        skip(text)


class Documents(Corpus):
    """The documents of some files. An end token separates them."""

    adds_eos = True

    def __init__(self, config: TextConfig, files: Sequence[TextFile]) -> None:
        self.config, self.files = config, files
        self.n_bytes = sum(file.size for file in files)

    def fingerprint(self) -> str:
        known = [self.config.divider, self.config.val_fraction]
        known += [file.sha256 for file in self.files]
        return f"documents:{hashlib.sha256(json.dumps(known).encode()).hexdigest()}"

    def documents(self) -> Iterator[Document]:
        return split_by_hash(self._texts(), self.config.val_fraction)

    def _texts(self) -> Iterator[Iterator[str]]:
        """Each document in parts, which are read before the next one."""
        for file in self.files:
            text = file.read()
            if self.config.divider is None:
                yield text
            else:
                yield from (iter([part]) for part in divided(text, self.config.divider))
            skip(text)

    def training_text(self) -> Iterator[str]:
        """An equal share of each file, from its beginning."""
        for file in self.files:
            texts = text_of(Documents(self.config, [file]), "train")
            yield from sample_of(texts, SAMPLE // len(self.files))
            skip(texts)


def skip(text: Iterator[str]) -> None:
    """Read a text to its end, where its checksum is compared."""
    for _ in text:
        pass


def divided(texts: Iterable[str], separator: str) -> Iterator[str]:
    """The parts of a text between separators that are not empty."""
    parts: list[str] = []  # of the document that has begun
    for text in texts:
        if parts and len(parts[-1]) < len(separator):  # the separator can lie in three parts
            text = "".join([*parts, text])
            parts = []
        end = parts[-1][-len(separator) :] if parts else ""
        if separator in end + text:
            *whole, text = "".join([*parts, text]).split(separator)
            yield from filter(None, whole)
            parts = []
        parts.append(text)
    if last := "".join(parts):
        yield last
