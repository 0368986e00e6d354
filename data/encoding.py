"""The tokens of a corpus on disk, in a folder that is written whole or not at all.

    meta.json     the type of the tokens, the bytes of text, and of how many documents only the end
                  is for validation
    train.bin     tokens of the training documents, one after the other
    train.idx     the place in it of each one's first token, as int64
    val.bin       the same of the validation documents
    val.idx
    val.bits      the information of each validation document, as float64, if it is known
    SHA256SUMS

Encoding in pieces gives the tokens of the whole text, in memory that does not grow with it. A
folder is used only if its checksums are right.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float64, Int64, UInt, UInt32
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from common.errors import pluralize
from common.files import SUMS, find_damage, read_json, read_text, write_sums
from data.cache import publish
from data.corpus import SPLITS, Corpus, Document
from data.patterns import PIECE, cut
from data.tokenizer import Tokenizer

Advance = Callable[[int, int], object]


@contextmanager
def show_encoding(n_bytes: int) -> Iterator[Advance]:
    """Show a bar until the end of the block; yields what counts bytes and documents that are
    encoded. n_bytes: of the whole text; 0 if that is unknown."""
    console = Console(stderr=True)
    with Progress(
        *(TextColumn("Encoding"), BarColumn(), TextColumn("{task.fields[documents]:,} documents,")),
        *(TransferSpeedColumn(), TimeRemainingColumn()),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task, count = progress.add_task("", total=n_bytes or None, documents=0), 0

        def advance(text: int, documents: int) -> None:
            nonlocal count
            count += documents
            progress.update(task, advance=text, documents=count)

        yield advance


Item = TypeVar("Item")
Result = TypeVar("Result")

META, BITS = "meta.json", "val.bits"
FILES = (META, BITS, *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "idx")))
THREADS = os.cpu_count() or 1


@dataclass(frozen=True)
class Dataset:
    """The tokens of both splits, read from disk when they are used.

    train, val: token ids, uint16 or uint32.
    val_bits: the information of each validation document, which no model can beat; None if unknown.
    sha256: of the tokens of both splits, to detect a changed text.
    report: how many documents a corpus of documents has.
    """

    tokenizer: Tokenizer
    train: UInt[np.ndarray, " train_token"]
    val: UInt[np.ndarray, " val_token"]
    val_bits: Float64[np.ndarray, " document"] | None
    sha256: str
    report: str | None = None


def read_tokens(folder: Path, tokenizer: Tokenizer) -> Dataset | None:
    """What `write_tokens` wrote; None if it is missing or damaged."""
    if find_damage(folder, FILES):
        return None
    metadata = read_json(folder / META)
    train, val = (_map(folder / f"{split}.bin", metadata["dtype"]) for split in SPLITS)
    bits = np.fromfile(folder / BITS, "<f8") if metadata["has_bits"] else None
    sums = [line for line in read_text(folder / SUMS).splitlines() if META not in line]
    sha256 = hashlib.sha256("\n".join(sums).encode()).hexdigest()
    report = None
    if metadata["has_documents"]:
        counts = [(folder / f"{split}.idx").stat().st_size // 8 for split in SPLITS]
        n_ends = metadata["ends"]
        whole, n_documents = counts[1] - n_ends, sum(counts) - n_ends
        parts = [pluralize(whole, "document")] if whole or not n_ends else []
        parts += [f"the {'end' if n_ends == 1 else 'ends'} of {n_ends:,}"] if n_ends else []
        report = (
            f"{pluralize(n_documents, 'document')}, {decimal(metadata['bytes'])} of text; "
            f"{' and '.join(parts)} for validation"
        )
    return Dataset(tokenizer, train, val, bits, sha256, report)


def _map(file: Path, dtype: str) -> np.ndarray:
    """The array in a file, which may be deleted from now on."""
    if not file.stat().st_size:  # which cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(file, dtype, "r"))


def write_tokens(corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> None:
    """Raises UserError for a text that cannot be read, and if the disk refuses."""
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    encode = partial(_encode, tokenizer, np.array(separator(corpus, tokenizer), np.uint32))
    with publish(folder) as temporary:
        n_bytes, n_ends = _write_splits(corpus, encode, temporary, dtype)
        bits = corpus.document_bits()
        np.array([] if bits is None else bits, "<f8").tofile(temporary / BITS)
        metadata = {
            "dtype": dtype,
            "bytes": n_bytes,
            "ends": n_ends,
            "has_documents": corpus.adds_eos,
            "has_bits": bits is not None,
        }
        (temporary / META).write_text(json.dumps(metadata) + "\n", encoding="utf-8")
        write_sums(temporary, FILES)


def _write_splits(
    corpus: Corpus, encode: Callable[[list[_Piece]], list[_Tokens]], folder: Path, dtype: str
) -> tuple[int, int]:
    """Encode in threads, and write in order; returns the number of bytes of text, and of documents
    whose end alone is for validation."""
    n_bytes = n_ends = 0

    def documents() -> Iterator[Document]:
        nonlocal n_ends
        for document in corpus.documents():
            n_ends += document.is_end
            yield document

    with (
        ThreadPoolExecutor(THREADS) as pool,
        show_encoding(corpus.n_bytes) as advance,
        closing(_Writer(folder, "train", dtype)) as train,
        closing(_Writer(folder, "val", dtype)) as val,
    ):
        for pieces in prefetch(pool, encode, _pieces(documents())):
            for piece in pieces:
                (val if piece.split == "val" else train).write(piece)
                n_bytes += piece.n_bytes
                advance(piece.n_bytes, len(piece.ends))
    return n_bytes, n_ends


def separator(corpus: Corpus, tokenizer: Tokenizer) -> list[int]:
    """The tokens that are written after each document."""
    return tokenizer.separator_ids if corpus.adds_eos else []


class _Piece(NamedTuple):
    """A part of a document of `split`. ends: whether the document ends with it."""

    split: str
    text: str
    ends: bool = False


class _Tokens(NamedTuple):
    """The tokens of pieces of `split`, the places among them where documents end, and the number of
    bytes of text."""

    split: str
    tokens: UInt32[np.ndarray, " token"]
    ends: Int64[np.ndarray, " document"]
    n_bytes: int


class _Writer:
    """Writes the two files of one split."""

    def __init__(self, folder: Path, split: str, dtype: str) -> None:
        self._tokens = (folder / f"{split}.bin").open("wb")
        self._starts = (folder / f"{split}.idx").open("wb")
        self._dtype, self._count, self._start = dtype, 0, 0

    def write(self, piece: _Tokens) -> None:
        self._tokens.write(piece.tokens.astype(self._dtype).tobytes())
        if len(ends := piece.ends + self._count):
            np.array([self._start, *ends[:-1]], "<i8").tofile(self._starts)
            self._start = ends[-1]
        self._count += len(piece.tokens)

    def close(self) -> None:
        self._tokens.close()
        self._starts.close()


def _pieces(documents: Iterable[Document]) -> Iterator[list[_Piece]]:
    """The pieces of all documents, as many at a time as are worth a thread's while."""
    batch: list[_Piece] = []
    size = 0
    for document in documents:
        is_empty = True
        for text in cut(document.parts):
            if size >= PIECE:
                yield batch
                batch, size = [], 0
            batch.append(_Piece(document.split, text))
            size, is_empty = size + len(text), False
        if not is_empty:  # otherwise the last piece is that of another document
            batch[-1] = batch[-1]._replace(ends=True)
    if batch:
        yield batch


def _encode(
    tokenizer: Tokenizer, ending: UInt32[np.ndarray, " _"], pieces: list[_Piece]
) -> list[_Tokens]:
    """The tokens of each split, if it has any. `ending` follows each document."""
    found = []
    for split in SPLITS:
        parts, ends, length = [], [], 0
        for piece in pieces:
            if piece.split != split:
                continue
            parts.append(tokenizer.encode_array(piece.text))
            length += len(parts[-1])
            if piece.ends:
                parts.append(ending)
                length += len(ending)
                ends.append(length)
        if parts:
            tokens = np.concatenate(parts)
            n_bytes = int(tokenizer.token_bytes[tokens].sum())
            found.append(_Tokens(split, tokens, np.array(ends, np.int64), n_bytes))
    return found


def prefetch(
    pool: Executor, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """The results in order; a few are computed before they are asked for."""
    running: deque[Future[Result]] = deque()
    for item in items:
        running.append(pool.submit(function, item))
        if len(running) > 2 * THREADS:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()
