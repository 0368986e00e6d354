"""Your own text: UTF-8 files, byte for byte.

Each file is a document, or each part of it between separators. `data.split` chooses those for
validation: of a single text, its end.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rich.filesize import decimal

from common.errors import UserError, check_range, pluralize, printable
from data.corpus import SAMPLE, Corpus, CorpusConfig, Document, Text, text_of
from data.decoding import NotText, decoded
from data.files import find_files, readable
from data.split import split_documents
from data.tokenizer import END

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

    @property
    def divider(self) -> str | None:
        r"""The separator of documents, in which `\n`, `\r` and `\t` stand for characters that are
        hard to type."""
        if self.separator is None:
            return None
        return self.separator.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")


def open_text(config: TextConfig) -> Texts:
    """The corpus of a `TextConfig`. Raises UserError, naming `data.path`, for files that are
    missing or not UTF-8; of several, those that are not are skipped."""
    if not config.path:
        raise UserError("data.path: is not set; give a UTF-8 text file, a folder or a glob pattern")
    marks = list(filter(None, [END, config.divider]))
    paths, files, others = find_files(config.path), list[TextFile](), list[str]()
    for path in paths:
        try:
            files.append(_check_file(path, marks))
        except NotText as error:
            if len(paths) == 1:
                raise UserError(f"data.path: {path} {error}") from error
            others.append(printable(str(path)))
    notes = [*_notes(config, files, others)]
    if not files:
        raise UserError(
            f"data.path: {config.path} has no UTF-8 text ({notes[0]}); give other files"
        )
    corpus = Texts(files, config.val_fraction, config.divider)
    if notes or corpus.adds_eos:
        reading = f"reading {pluralize(len(files), 'file')}, {decimal(corpus.n_bytes)}"
        corpus.description = "; ".join([reading, *notes])
    return corpus


def _notes(config: TextConfig, files: Sequence[TextFile], others: Sequence[str]) -> Iterator[str]:
    """Which files are no text, of which at most ten are named; and what may not be meant."""
    if others:
        more = f" and {len(others) - 10:,} more" if len(others) > 10 else ""
        count = pluralize(len(others), "file")
        yield f"skipped {count} (not UTF-8 text, or empty): {', '.join(others[:10])}{more}"
    found = {mark for file in files for mark in file.marks}
    if rows := sum(file.path.suffix.lower() in ROWS for file in files):
        yield f"{pluralize(rows, 'file')} of rows as plain text (data=dataset divides them)"
    if END in found and END not in str(config.divider):
        yield f"{END} as plain text (data.separator='{END}' divides documents there)"
    if config.divider and config.divider not in found:
        yield f"data.separator={config.divider!r} occurs nowhere"


class TextFile(NamedTuple):
    """A file that is UTF-8 and not empty. size, sha256: of its bytes. marks: which of the texts
    that were searched for it has."""

    path: Path
    size: int
    sha256: str
    marks: Set[str] = frozenset()

    def read(self) -> Iterator[str]:
        """The text in blocks. Raises UserError at its end if these are not the bytes of `sha256`:
        whatever is made of a text is stored under its checksum."""
        digest = hashlib.sha256()
        with readable(self.path), self.path.open("rb") as file:
            with suppress(NotText):
                for text in decoded(file):
                    digest.update(text.encode())
                    yield text
            if digest.hexdigest() != self.sha256:
                raise UserError(
                    f"data.path: {self.path} was changed while it was read; start again"
                )


def _check_file(path: Path, marks: Collection[str]) -> TextFile:
    """Raises NotText for a file that is empty or not UTF-8."""
    digest, found, end = hashlib.sha256(), set[str](), ""
    with readable(path), path.open("rb") as file:
        for text in decoded(file):
            digest.update(text.encode())
            text = end + text
            found |= {mark for mark in marks if mark not in found and mark in text}
            end = text[-max(map(len, marks)) :]  # a mark can lie in two parts
        if not file.tell():
            raise NotText("is empty; give a text with at least one character")
        return TextFile(path, file.tell(), digest.hexdigest(), found)


class Texts(Corpus):
    """Files, or the documents between separators in them. An end token separates several.

    Raises UserError while it is read, if a file was changed meanwhile.
    """

    def __init__(
        self, files: Sequence[TextFile], val_fraction: float, divider: str | None = None
    ) -> None:
        self.files, self.val_fraction, self.divider = files, val_fraction, divider
        self.adds_eos = divider is not None or len(files) > 1
        self.n_bytes = sum(file.size for file in files)

    def fingerprint(self) -> str:
        known = [self.divider, self.val_fraction, *(file.sha256 for file in self.files)]
        return f"text:{hashlib.sha256(json.dumps(known).encode()).hexdigest()}"

    def documents(self) -> Iterator[Document]:
        if self.divider is None:  # nothing is read before it is asked for
            files = (Text(file.size, file.read()) for file in self.files)
            return split_documents(files, self.val_fraction, ahead=math.inf)
        return split_documents(self._parts(self.divider), self.val_fraction, self.n_bytes)

    def _parts(self, divider: str) -> Iterator[Text]:
        for file in self.files:
            for part in divided(file.read(), divider):
                yield Text(len(part.encode()), iter([part]))

    def training_text(self) -> Iterator[str]:
        """The beginning of each part, if the text is long."""
        share = min(SAMPLE / self.n_bytes, 1)
        for text in text_of(self, "train"):
            yield text[: round(share * len(text))]
            if self.adds_eos or share < 1:
                yield "\n"  # no word continues in the next document


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
