"""The tokens of a corpus on disk, in a folder that is written whole or not at all.

    meta.json     the type of the tokens, the bytes of text, and of how many documents only the end
                  is for validation
    train.bin     tokens of the training documents, one after the other
    train.idx     the place in it of each one's first token, as int64: the index of documents
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
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, UInt, UInt32
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from common.console import SteadyConsole
from common.errors import pluralize
from common.files import SUMS, find_damage, read_json, read_text, write_sums
from data.cache import publish
from data.corpus import SPLITS, Corpus, Document
from data.pieces import PIECE, cut
from data.tokenizer import Tokenizer

Advance = Callable[[int, int], object]
Batch = list[str | None]  # documents in pieces of text, None after each

META, BITS = "meta.json", "val.bits"
FILES = (META, BITS, *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "idx")))
THREADS = os.cpu_count() or 1


@contextmanager
def show_encoding(n_bytes: int) -> Iterator[Advance]:
    """Show a bar until the end of the block; yields what shows how many bytes and documents are
    encoded. n_bytes: of the whole text; 0 if that is unknown."""
    console = SteadyConsole(stderr=True)
    with Progress(
        *(TextColumn("Encoding"), BarColumn(), TextColumn("{task.fields[documents]:,} documents,")),
        *(TransferSpeedColumn(), TimeRemainingColumn()),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=n_bytes or None, documents=0)
        yield lambda done, documents: progress.update(task, completed=done, documents=documents)


@dataclass(frozen=True)
class Dataset:
    """The tokens of both splits and the index of documents, read from disk when they are used.

    train, val: token ids, uint16 or uint32.
    val_bits: the information of each validation document, which no model can beat; None if unknown.
    sha256: of the tokens of both splits, to detect a changed text.
    report: how many documents a corpus of documents has.
    train_documents, val_documents: the first token of every document; None if that is unknown.
    is_aligned: windows begin where documents do, if a text ends every one
        (`Corpus.document_end`); others are read as they lie.
    """

    tokenizer: Tokenizer
    train: UInt[np.ndarray, " train_token"]
    val: UInt[np.ndarray, " val_token"]
    val_bits: Float64[np.ndarray, " document"] | None
    sha256: str
    report: str | None = None
    train_documents: Int64[np.ndarray, " train_document"] | None = None
    val_documents: Int64[np.ndarray, " val_document"] | None = None
    is_aligned: bool = True

    @property
    def train_starts(self) -> Int64[np.ndarray, " train_document"] | None:
        """Where windows of training begin; None: anywhere."""
        return self.train_documents if self.is_aligned else None

    @property
    def val_starts(self) -> Int64[np.ndarray, " document"] | None:
        """Where windows of validation begin; None: anywhere."""
        return self.val_documents if self.is_aligned else None


def read_tokens(folder: Path, tokenizer: Tokenizer, corpus: Corpus) -> Dataset | None:
    """What `write_tokens` wrote; None if it is missing or damaged."""
    if find_damage(folder, FILES):
        return None
    metadata = read_json(folder / META)
    train, val = (_map(folder / f"{split}.bin", metadata["dtype"]) for split in SPLITS)
    documents = [_map(folder / f"{split}.idx", "<i8") for split in SPLITS]
    bits = np.fromfile(folder / BITS, "<f8") if metadata["has_bits"] else None
    report = None
    if corpus.adds_eos:
        n_ends = metadata["ends"]
        whole, n_documents = len(documents[1]) - n_ends, sum(map(len, documents)) - n_ends
        parts = [pluralize(whole, "document")] if whole or not n_ends else []
        parts += [f"the {'end' if n_ends == 1 else 'ends'} of {n_ends:,}"] if n_ends else []
        report = f"{pluralize(n_documents, 'document')}, {decimal(metadata['bytes'])} of text"
        if len(train):  # or else it is not divided
            report += f"; {' and '.join(parts)} for validation"
    sums = dict(line.split("  ")[::-1] for line in read_text(folder / SUMS).splitlines())
    if corpus.document_end is not None:
        # The index follows from the tokens; older runs have the checksum of one document's index.
        sums |= {f"{split}.idx": hashlib.sha256(bytes(8)).hexdigest() for split in SPLITS}
    lines = [f"{digest}  {name}" for name, digest in sums.items() if name != META]
    sha256 = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    is_aligned = corpus.document_end is not None
    return Dataset(
        tokenizer, train, val, bits, sha256, report, documents[0], documents[1], is_aligned
    )


def _map(file: Path, dtype: str) -> np.ndarray:
    """The array in a file, which may be deleted from now on."""
    if not file.stat().st_size:  # which cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(file, dtype, "r"))


def write_tokens(corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> None:
    """Encode in threads, and write in order. Raises UserError for a text that cannot be read, and
    if the disk refuses."""
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    encode = partial(_encode, tokenizer, np.array(separator(corpus, tokenizer), np.uint32))
    known: dict[str, Any] = {"dtype": dtype, "bytes": 0, "ends": 0, "has_bits": False}
    with publish(folder) as temporary:
        with (
            ThreadPoolExecutor(THREADS) as pool,
            show_encoding(corpus.n_bytes) as advance,
            closing(_Writer(temporary, "train", dtype, tokenizer, corpus.document_end)) as train,
            closing(_Writer(temporary, "val", dtype, tokenizer, corpus.document_end)) as val,
        ):
            for split, piece in _prefetch(pool, encode, _batches(corpus.documents(), known)):
                (val if split == "val" else train).write(piece)
                known["bytes"] += piece.n_bytes
                advance(known["bytes"], train.n_documents + val.n_documents)
        bits = corpus.document_bits()
        known["has_bits"] = bits is not None
        np.array([] if bits is None else bits, "<f8").tofile(temporary / BITS)
        (temporary / META).write_text(json.dumps(known) + "\n", encoding="utf-8")
        write_sums(temporary, FILES)


def separator(corpus: Corpus, tokenizer: Tokenizer) -> list[int]:
    """The tokens that are written after each document."""
    return tokenizer.separator_ids if corpus.adds_eos else []


class _Tokens(NamedTuple):
    """The tokens of a batch, the places among them where documents end, and the number of bytes of
    text."""

    tokens: UInt32[np.ndarray, " token"]
    ends: Int64[np.ndarray, " document"]
    n_bytes: int


class _Writer:
    """Writes the two files of one split. mark: the text that ends every document, if one does."""

    def __init__(
        self, folder: Path, split: str, dtype: str, tokenizer: Tokenizer, mark: str | None
    ) -> None:
        self._tokens = (folder / f"{split}.bin").open("wb")
        self._starts = (folder / f"{split}.idx").open("wb")
        self._dtype, self._tokenizer = dtype, tokenizer
        self._mark = None if mark is None else mark.encode()
        self._count, self._next = 0, np.zeros(1, np.int64)  # where documents begin, if any follow
        self.n_documents = 0
        self._text = b""  # with which a mark may have begun

    def write(self, piece: _Tokens) -> None:
        self._tokens.write(piece.tokens.astype(self._dtype).tobytes())
        ends = piece.ends if self._mark is None else self._ends_of_marks(piece.tokens, self._mark)
        starts = np.concatenate([self._next, ends + self._count])
        self._count += len(piece.tokens)
        is_begun = starts < self._count
        starts[is_begun].astype("<i8").tofile(self._starts)
        self._next = starts[~is_begun]
        self.n_documents += int(is_begun.sum())

    def _ends_of_marks(
        self, tokens: UInt32[np.ndarray, " token"], mark: bytes
    ) -> Int64[np.ndarray, " document"]:
        """The places among `tokens` that follow a mark, whichever tokens spell it. Two documents
        are one if the mark between them ends inside a token."""
        ends = len(self._text) + self._tokenizer.token_bytes[tokens].cumsum()
        text = self._text + self._tokenizer.decode_bytes(tokens.tolist())
        marks = [match.end() for match in re.finditer(re.escape(mark), text)]
        self._text = text[max([0, len(text) - len(mark) + 1, *marks[-1:]]) :]
        return np.flatnonzero(np.isin(ends, marks)) + 1

    def close(self) -> None:
        self._tokens.close()
        self._starts.close()


def _batches(documents: Iterable[Document], known: dict[str, Any]) -> Iterator[tuple[str, Batch]]:
    """The documents of each split in batches that are worth a thread's while. Counts in
    `known["ends"]` those of which only the end is for validation."""
    batches: dict[str, Batch] = {split: [] for split in SPLITS}
    sizes = dict.fromkeys(SPLITS, 0)
    for document in documents:
        split, is_empty = document.split, True
        known["ends"] += document.is_end
        for text in cut(document.parts):
            batches[split].append(text)
            sizes[split] += len(text)
            is_empty = False
            if sizes[split] >= PIECE:
                yield split, batches[split]
                batches[split], sizes[split] = [], 0
        if not is_empty:
            batches[split].append(None)
    yield from batches.items()


def _encode(tokenizer: Tokenizer, ending: UInt32[np.ndarray, " _"], batch: Batch) -> _Tokens:
    """The tokens of a batch. `ending` follows each document."""
    parts, ends, length = [np.array([], np.uint32)], [], 0
    for text in batch:
        parts.append(ending if text is None else tokenizer.encode_array(text))
        length += len(parts[-1])
        if text is None:
            ends.append(length)
    tokens = np.concatenate(parts)
    n_bytes = int(tokenizer.token_bytes[tokens].sum())
    return _Tokens(tokens, np.array(ends, np.int64), n_bytes)


def _prefetch(
    pool: Executor, encode: Callable[[Batch], _Tokens], batches: Iterable[tuple[str, Batch]]
) -> Iterator[tuple[str, _Tokens]]:
    """The tokens of each batch in order; a few are encoded before they are asked for."""
    running: deque[tuple[str, Future[_Tokens]]] = deque()
    for split, batch in batches:
        running.append((split, pool.submit(encode, batch)))
        if len(running) > 2 * THREADS:
            split, tokens = running.popleft()
            yield split, tokens.result()
    for split, tokens in running:
        yield split, tokens.result()
