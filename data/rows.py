"""The texts of one field in a file of rows: jsonl, csv, parquet, arrow, or lines of text.

A file is local or at a URL, and compressed if its suffix says so. Other fields can have any
type, or be missing in some files. Memory does not grow with
the file, unless it is one JSON value.

The readers raise UserError, naming `data.field`, for a field that is missing or not text, and
whatever the libraries raise for a file that cannot be read.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, BinaryIO

import fsspec
import pyarrow
import pyarrow.parquet
import zstandard
from fsspec.compression import register_compression

from common.errors import UserError, printable

# Python refuses to convert integers of thousands of digits, which other fields may have.
DECODER = json.JSONDecoder(
    strict=False, parse_int=lambda digits: int(digits) if len(digits) < 1000 else float(digits)
)
BLOCK = 1 << 22  # bytes of JSON that are parsed at a time
ROWS = 1000  # that are read at a time where a file does not say it
TEXTS = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
GAP = re.compile(r"\s*")


def _zstandard(file: Any, mode: str) -> io.BufferedReader:
    """Unlike that of fsspec, also of several frames."""
    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return io.BufferedReader(reader)


register_compression("zstd", _zstandard, "zst", force=True)


def _open(name: str) -> AbstractContextManager[BinaryIO]:
    return fsspec.open(name, "rb", compression="infer")


def _check(name: str, field: str, texts: Sequence[str], others: Iterable[str] = ()) -> None:
    """Raise UserError unless the field is one of those that are text."""
    if field in texts:
        return
    problem = f"{printable(name)} has no field {field!r}"
    if field in others:
        problem = f"{field!r} of {printable(name)} is not text"
    named = [name if name == name.strip() else repr(name) for name in texts]  # spaces are seen
    choice = f"choose one of {', '.join(named)[:200]}" if texts else "none of its fields is text"
    raise UserError(f"data.field: {problem}; {printable(choice)}")


def json_texts(name: str, field: str) -> Iterator[str | None]:
    """One object a line, or what is read at once: objects over several lines, or in a list."""
    with _open(name) as file:
        block, n_rows, n_lines = file.read(BLOCK) + file.readline(), 0, 0  # before the block
        if not _has_lines(block):
            block += file.read()
        while block:
            rows = enumerate(_objects(block, n_lines), n_rows + 1)
            texts = [_text(row, number, name, field) for number, row in rows]
            if not n_rows and not any(texts):
                first = [*islice(_objects(block), ROWS)]
                if first and not any(field in row for row in first):
                    _check(name, field, _names(first))
            yield from texts
            n_rows, n_lines = n_rows + len(texts), n_lines + block.count(b"\n")
            block = file.read(BLOCK) + file.readline()


def _has_lines(block: bytes) -> bool:
    """Whether the first line is an object."""
    try:
        return isinstance(
            DECODER.decode(block.lstrip().partition(b"\n")[0].decode("utf-8-sig")), dict
        )
    except ValueError:
        return False


def _objects(block: bytes, n_lines: int = 0) -> Iterator[dict[str, Any]]:
    """Raises ValueError for damaged JSON, and for rows of other kinds. n_lines: those before."""
    text, place = block.decode("utf-8-sig").strip(), 0
    while place < len(text):
        try:
            value, place = DECODER.raw_decode(text, place)
        except json.JSONDecodeError as error:
            around = text[max(error.pos - 20, 0) : error.pos + 20]
            line = n_lines + error.lineno
            raise ValueError(f"damaged JSON in line {line}, at {around!r}: {error.msg}") from None
        place += len(GAP.match(text, place)[0])  # type: ignore[index]
        for row in value if isinstance(value, list) else [value]:
            if not isinstance(row, dict | str):
                raise ValueError(f"a row is {json.dumps(row)[:40]}, and not an object")
            yield {"text": row} if isinstance(row, str) else row


def _text(row: dict[str, Any], number: int, name: str, field: str) -> str | None:
    text = row.get(field)
    if not isinstance(text, str | None):
        if number == 1 and (others := _names([row])):
            _check(name, field, others, row)
        value = printable(json.dumps(text)[:40])
        raise ValueError(f"{field!r} of row {number:,} is {value}, and not text")
    # Half of a pair of surrogates becomes U+FFFD.
    return text and text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _names(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The fields that are text in some row."""
    return [*{name: 0 for row in rows for name in row if isinstance(row[name], str)}]


def csv_texts(name: str, field: str, separator: str = ",") -> Iterator[str | None]:
    """Every column is text."""
    csv.field_size_limit((1 << 31) - 1)
    with _open(name) as file:
        rows = csv.reader(
            io.TextIOWrapper(file, "utf-8-sig", newline=""), delimiter=separator, strict=True
        )
        names = next(rows, [])
        _check(name, field, names)
        if names.count(field) > 1:
            raise UserError(
                f"data.field: {printable(name)} has several columns {field!r}; rename one"
            )
        place = names.index(field)
        for number, row in enumerate(filter(None, rows), 2):
            if len(row) > len(names):
                raise ValueError(
                    f"row {number:,} has {len(row)} columns, the first one {len(names)}"
                )
            yield row[place] if place < len(row) else None


def parquet_texts(name: str, field: str) -> Iterator[str | None]:
    with _open(name) as file:
        parquet = pyarrow.parquet.ParquetFile(file)
        _check_schema(parquet.schema_arrow, name, field)
        for batch in parquet.iter_batches(ROWS, columns=[field]):
            yield from batch[0].to_pylist()


def arrow_texts(name: str, field: str) -> Iterator[str | None]:
    with _open(name) as file:
        try:
            reader = pyarrow.ipc.open_stream(file)
            batches = iter(reader)
        except pyarrow.ArrowInvalid:
            reader = pyarrow.ipc.open_file(file)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        _check_schema(reader.schema, name, field)
        for batch in batches:
            column = batch[field]
            column.validate(full=True)
            yield from column.to_pylist()


def _check_schema(schema: Any, name: str, field: str) -> None:
    types = {column.name: column.type for column in schema}
    for column, kind in types.items():
        types[column] = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    _check(name, field, [column for column in types if types[column] in TEXTS], types)


def line_texts(name: str, field: str) -> Iterator[str | None]:
    _check(name, field, ["text"])
    with _open(name) as file:
        for line in io.TextIOWrapper(file, "utf-8-sig", newline="\n"):
            yield line.rstrip("\r\n")


# By the suffix of a file.
READERS: dict[str, Callable[[str, str], Iterator[str | None]]] = {
    ".jsonl": json_texts,
    ".ndjson": json_texts,
    ".json": json_texts,
    ".csv": csv_texts,
    ".tsv": partial(csv_texts, separator="\t"),
    ".parquet": parquet_texts,
    ".arrow": arrow_texts,
    ".txt": line_texts,
}
