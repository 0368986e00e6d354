"""Documents: lines of `.jsonl` files, rows of `.parquet` files, plain texts or what divides them.

Promises: documents come in the order of the files, and in memory that does not depend on the size
of a file; which split a document belongs to depends on its own text alone. Knows nothing of tokens.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from io import BufferedIOBase
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rich.filesize import decimal

from data.progress import Reading
from data.remote import BLOCK
from data.sources import NotText, Source, find, is_url, readable, require
from data.text import Text, TextConfig, note_on_json
from errors import UserError, counted

Document = str | Iterable[str]  # long ones come in parts, each read before the next is asked for

# The characters at the start of a document that decide to which split it belongs. The first part of
# a document is at least as long, if it is not all of it.
FIRST = 1 << 16
SAMPLE = 1 << 28
_ROWS = 1024
SIBLINGS = 64  # files of which one may be the only text
SIZE = 1 << 64


class Sides(NamedTuple):
    """Chooses the split of a document: those whose hash is below `limit` are validation."""

    limit: int

    @classmethod
    def of(cls, val_fraction: float) -> Sides:
        return cls(SIZE if val_fraction == 1 else int(val_fraction * SIZE))

    def __call__(self, digest: int) -> str:
        return "val" if digest < self.limit else "train"


def digest_of(text: str) -> int:
    """64 bits of the BLAKE2b of a text."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def repaired(text: str) -> str:
    """The text with U+FFFD for lone surrogates, which JSON can spell and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Documents:
    """A corpus of documents: the `sources` at the path of `config`. See `data.corpus.Corpus`."""

    def __init__(self, config: TextConfig, sources: list[Source]) -> None:
        self.config, self.sources = config, sources
        size = sum(each.size or 0 for each in sources)
        files = counted(len(sources), "file")
        self.description = f"reading documents of {files}, {decimal(size)}"
        if unknown := sum(not each.has_version for each in sources):
            self.description += (
                f" (note: the server gives neither a date nor a version of {unknown:,} of them, so "
                "not every change is noticed)"
            )
        self.description += note_on_json(each.name for each in sources)

    def fingerprint(self) -> str:
        """Changes when a file changes, or a setting that decides what a document is."""
        digest = hashlib.sha256()
        for source in self.sources:
            digest.update(source.fingerprint.encode() + b"\n")
        return f"documents:{digest.hexdigest()}:{self.config.rules}:{self.config.deduplicate}"

    def pieces(self, split: str) -> Iterator[str]:
        """The text of the documents of `split`, one after the other."""
        sides = Sides.of(self.config.val_fraction)
        for source in self.sources:
            for document in read_documents(source, self.config):
                parts = iter([document] if isinstance(document, str) else document)
                first = next(parts, "")
                if sides(digest_of(first[:FIRST])) == split:
                    yield first
                    yield from parts
                else:
                    for _ in parts:
                        pass

    def sample(self) -> Iterator[str]:
        """The first documents of each file, to train a tokenizer on: of all files together, about
        `SAMPLE` characters of training documents."""
        share = SAMPLE // len(self.sources)
        for source in self.sources:
            left = share
            for piece in Documents(self.config, [source]).pieces("train"):
                yield repaired(piece)
                yield "\n"  # no word goes on in the next document
                left -= len(piece)
                if left < 0:
                    break

    def document_bits(self, split: str) -> None:
        """None: the information of free text is unknown."""
        return


def open_text(config: TextConfig) -> Text | Documents:
    """The corpus of a `TextConfig`: one plain text that is not divided is a `Text`.

    Raises UserError, naming `data.path`, for files that are missing or cannot be used.
    """
    path = config.path or ""
    if config.field is None or path in ("", "-") or (not is_url(path) and Path(path).is_fifo()):
        return Text(config)
    sources = find(path, config.exclude)
    if any(PurePosixPath(each.name).name == "shards.json" for each in sources):
        raise UserError(
            f"data.path: {path} has shards that prepare.py made; to train on them, give "
            "their folder itself as a local path, otherwise leave them out with data.exclude"
        )
    if config.separator is None and (single := _single_text(sources)):
        return Text(config, single, [each.name for each in sources if each is not single])
    return Documents(config, sources)


def _single_text(sources: list[Source]) -> Source | None:
    """The only plain text of these files; None if there are several, or other documents."""
    if any(each.suffixes[0] in READERS for each in sources):
        return None
    if len(sources) > 1:
        if len(sources) > SIBLINGS or any(each.files for each in sources):
            return None
        sources = list(islice((each for each in sources if _is_text(each)), 2))
    return sources[0] if len(sources) == 1 else None


def _is_text(source: Source) -> bool:
    """Whether a file is UTF-8 to its end, and not empty."""
    with readable(source.name), source.open() as stored, suppress(NotText):
        return sum(map(len, _decoded(source.stream(stored)))) > 0
    return False


def read_documents(
    source: Source,
    config: TextConfig,
    reading: Reading | None = None,
    skipped: dict[str, str] | None = None,
) -> Iterator[Document]:
    """The documents of one file that are not empty, in order.

    Of a plain text that is not UTF-8, none: the reason is added to `skipped`, under the name of the
    file. Raises UserError for what is damaged, and for a remote text that begins as UTF-8 and does
    not go on so.
    """
    reader = READERS.get(source.suffixes[0], _texts)
    with readable(source.name), source.open() as stored:
        with reading.follow(source, stored) if reading else nullcontext():
            try:
                yield from reader(source, stored, config)
            except NotText as error:
                if skipped is not None:
                    skipped[source.name] = str(error)
        source.check_unchanged()


def _lines(source: Source, stored: BufferedIOBase, config: TextConfig) -> Iterator[Document]:
    for number, line in enumerate(source.stream(stored), 1):
        if not line.strip():
            continue
        where = f"{source.name}: line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = str(error)
            if isinstance(error, json.JSONDecodeError):
                reason = f"{error.msg} at column {error.colno}"
            raise UserError(
                f"data.path: {where} is not JSON ({reason}); repair it, or leave it out"
            ) from error
        if not isinstance(row, dict):
            raise UserError(
                f"data.path: {where} is not a JSON object with a key {config.field!r}; leave it out"
            )
        if config.field not in row:
            raise UserError(
                f"data.field: {where} has no key {config.field!r}; "
                f"choose one of its keys: {', '.join(row)[:200]}"
            )
        yield from _checked(row[config.field], where, config)


def _checked(text: Any, where: str, config: TextConfig) -> Iterator[str]:
    """The text, unless it is empty or null."""
    if text is not None and not isinstance(text, str):
        raise UserError(
            f"data.field: {config.field!r} of {where} is not a text; choose another key or column"
        )
    if text:
        yield text


def _rows(source: Source, stored: BufferedIOBase, config: TextConfig) -> Iterator[Document]:
    arrow, parquet = (require(each, "data.path") for each in ("pyarrow", "pyarrow.parquet"))
    # By default Arrow keeps the stored bytes of all row groups in memory.
    streamed = {"pre_buffer": False, "buffer_size": BLOCK}
    with source.seekable(stored) as file, parquet.ParquetFile(file, **streamed) as table:
        schema = table.schema_arrow
        if config.field not in schema.names:
            raise UserError(
                f"data.field: {source.name} has no column {config.field!r}; choose one "
                f"of its columns: {', '.join(schema.names)[:200]}"
            )
        if schema.names.count(config.field) > 1:
            raise UserError(
                f"data.field: {source.name} has several columns {config.field!r}; "
                "rename them, or choose another"
            )
        kind = schema.field(config.field).type
        if arrow.types.is_dictionary(kind):
            kind = kind.value_type
        if kind not in (arrow.string(), arrow.large_string(), arrow.string_view()):
            raise UserError(
                f"data.field: the column {config.field!r} of {source.name} has the type "
                f"{kind}, and not string; choose another column"
            )
        for batch in table.iter_batches(_ROWS, columns=[config.field], use_threads=False):
            yield from filter(None, batch.column(0).to_pylist())


def _texts(source: Source, stored: BufferedIOBase, config: TextConfig) -> Iterator[Document]:
    """The documents of a plain text. Raises NotText before the first."""
    if source.files is None:  # a remote file is not fetched twice
        with source.open() as checked:
            deque(_decoded(source.stream(checked)), maxlen=0)
    texts = _decoded(source.stream(stored))
    first = next(texts, None)
    if first is None:
        return
    texts = chain([first], _rest(source, texts))
    if config.divider is not None:
        yield from _divided(texts, config.divider)
    else:
        yield texts


def _rest(source: Source, texts: Iterator[str]) -> Iterator[str]:
    try:
        yield from texts
    except NotText as error:
        raise UserError(
            f"data.path: {source.name} is not UTF-8 text ({error}); convert it, or leave it out "
            "with data.exclude"
        ) from error


def _decoded(stream: BufferedIOBase) -> Iterator[str]:
    """The text of a stream in blocks that are not empty, without a byte order mark. Raises NotText
    where it is not UTF-8, or has a zero byte."""
    decoder, at, begun = codecs.getincrementaldecoder("utf-8")(), 0, False
    while True:
        block = stream.read(BLOCK)
        is_last = len(block) < BLOCK
        unfinished = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=is_last)
        except UnicodeDecodeError as error:
            raise NotText(f"byte {at - unfinished + error.start:,}") from None
        if b"\0" in block:
            raise NotText("a zero byte")
        at += len(block)
        if not begun:
            text = text.removeprefix("\ufeff")
        if text:
            begun = True
            yield text
        if is_last:
            return


def _divided(texts: Iterator[str], separator: str) -> Iterator[Document]:
    """The parts of a text between separators that are not empty."""
    parts: list[str] = []  # of the document that has begun
    for text in texts:
        end = parts[-1][-len(separator) :] if parts else ""
        if separator in end + text:
            *whole, text = "".join([*parts, text]).split(separator)
            yield from filter(None, whole)
            parts = []
        elif len(end) < len(separator):  # a short part: the next may complete the separator
            text = "".join([*parts, text])
            parts = []
        parts.append(text)
    if last := "".join(parts):
        yield last


READERS = {".jsonl": _lines, ".ndjson": _lines, ".parquet": _rows}
