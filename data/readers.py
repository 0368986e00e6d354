"""The documents of one file: lines of `.jsonl`, rows of `.parquet`, plain texts or what divides
them. They come in the order of the file, in memory that does not depend on its size."""

from __future__ import annotations

import json
from collections.abc import Iterator

from common.errors import UserError
from data.decoding import BLOCK, NotText, decoded
from data.progress import Reading, Stream
from data.sources import Source

ROWS = 1024


def read_documents(
    source: Source, field: str, separator: str | None, reading: Reading | None = None
) -> Iterator[Iterator[str]]:
    """The texts of one file that are not empty, in order, each in parts that must be read before
    the next text is asked for.

    Of a plain text that is not UTF-8, none: `reading` keeps its name. Raises UserError for what is
    damaged.
    """
    with source.open(reading) as stored:
        try:
            if reader := READERS.get(source.suffixes[0]):
                yield from (iter([text]) for text in reader(source, stored, field) if text)
            else:
                yield from _plain(source, stored, separator)
        except NotText as error:
            if reading:
                reading.skipped.append(f"{source.name} {error}".partition(";")[0])


def _lines(source: Source, stored: Stream, field: str) -> Iterator[str | None]:
    for number, line in enumerate(source.stream(stored), 1):
        if not line.strip():
            continue
        where = f"{source.name}: line {number}"
        try:
            row = json.loads(line.rstrip())
        except (ValueError, RecursionError) as error:
            reason = str(error)
            if isinstance(error, json.JSONDecodeError):
                reason = f"{error.msg} at column {error.colno}"
            raise UserError(
                f"data.path: {where} is not JSON ({reason}); repair it, or leave it out"
            ) from error
        if not isinstance(row, dict):
            raise UserError(
                f"data.path: {where} is not a JSON object with a key {field!r}; leave it out"
            )
        if field not in row:
            raise UserError(
                f"data.field: {where} has no key {field!r}; "
                f"choose one of its keys: {', '.join(row)[:200]}"
            )
        text = row[field]
        if text is not None and not isinstance(text, str):
            raise UserError(
                f"data.field: {field!r} of {where} is not a text; choose another key or column"
            )
        yield text


def _rows(source: Source, stored: Stream, field: str) -> Iterator[str | None]:
    import pyarrow
    from pyarrow import parquet

    # By default Arrow keeps the stored bytes of all row groups in memory.
    streamed = {"pre_buffer": False, "buffer_size": BLOCK}
    with source.seekable(stored) as file, parquet.ParquetFile(file, **streamed) as table:
        schema = table.schema_arrow
        if schema.names.count(field) != 1:
            problem = "several columns" if field in schema.names else "no column"
            raise UserError(
                f"data.field: {source.name} has {problem} {field!r}; choose one of its columns: "
                f"{', '.join(schema.names)[:200]}"
            )
        kind = schema.field(field).type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        if kind not in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()):
            raise UserError(
                f"data.field: the column {field!r} of {source.name} has the type "
                f"{kind}, and not string; choose another column"
            )
        for batch in table.iter_batches(ROWS, columns=[field], use_threads=False):
            yield from batch.column(0).to_pylist()


READERS = {".jsonl": _lines, ".ndjson": _lines, ".parquet": _rows}


def _plain(source: Source, stored: Stream, separator: str | None) -> Iterator[Iterator[str]]:
    """The documents of a plain text. Raises NotText before the first."""
    with source.seekable(stored) as file:
        is_empty = not sum(map(len, decoded(file)))
        file.seek(0)
        if separator is not None:
            yield from (iter([text]) for text in _divided(decoded(file), separator))
        elif not is_empty:
            yield decoded(file)


def _divided(texts: Iterator[str], separator: str) -> Iterator[str]:
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
