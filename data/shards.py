"""Shards: documents as tokens on disk, in folders that are written whole or not at all.

    meta.json     the type of the tokens; of each split the numbers of tokens, documents and bytes
    train.bin     tokens of the training documents, one after the other
    train.docs    of each: 64 bits of its hash, and its number of tokens
    val.bin       the same of the validation documents
    val.docs
    val.bits      the information of each validation document, if it is known
    SHA256SUMS

Encoding in pieces gives the tokens of the whole text, in memory that does not grow with it. A shard
is used only if its checksums are right.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import UInt64

from common.errors import print
from common.files import SUMS, find_damage, read_json, read_text, write_sums
from data.cache import publish
from data.corpus import SPLITS, Corpus, Document
from data.patterns import PIECE, cut
from data.progress import Reading, show_reading
from data.tokenizer import Tokenizer

Item = TypeVar("Item")
Result = TypeVar("Result")

FORMAT = 3  # part of every cache key; increment it when the files change
META, BITS = "meta.json", "val.bits"
FILES = (META, BITS, *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "docs")))
THREADS = os.cpu_count() or 1


class Shard(NamedTuple):
    """A folder of tokens that is whole. about: the content of its `meta.json`."""

    folder: Path
    about: dict[str, Any]

    def documents(self, split: str) -> UInt64[np.ndarray, "document 2"]:
        """Of each document of `split`, its hash and its number of tokens."""
        return np.fromfile(self.folder / f"{split}.docs", "<u8").reshape(-1, 2)

    def total(self, key: str) -> int:
        """The number of "tokens", "documents" or "bytes" in both splits."""
        return sum(self.about[split][key] for split in SPLITS)

    @property
    def sha256(self) -> str:
        """Depends on the tokens of all documents, and not on where they come from."""
        sums = [line for line in read_text(self.folder / SUMS).splitlines() if META not in line]
        return hashlib.sha256("\n".join(sums).encode()).hexdigest()


def cache_key(*parts: str) -> str:
    """A name in the cache folder for what depends on `parts` alone."""
    return hashlib.sha256(json.dumps([FORMAT, *parts]).encode()).hexdigest()[:32]


def shard_key(corpus: Corpus, tokenizer: Tokenizer) -> str:
    """The `cache_key` of a corpus as it is encoded by a tokenizer."""
    return cache_key(corpus.fingerprint(), tokenizer.digest, *map(str, _ending(corpus, tokenizer)))


def _ending(corpus: Corpus, tokenizer: Tokenizer) -> list[int]:
    """The tokens that are written after each document."""
    return tokenizer.separator_ids if corpus.adds_eos else []


def find_shards(folders: Iterable[Path]) -> list[Shard | None]:
    """The shards in these folders; None for one that is missing or damaged."""
    with ThreadPoolExecutor(THREADS) as pool:  # since checksums of many files take long
        return list(pool.map(_find_shard, folders))


def _find_shard(folder: Path) -> Shard | None:
    if find_damage(folder, FILES):
        return None
    return Shard(folder, read_json(folder / META))


def encode_shards(
    parts: Mapping[Path, Corpus], tokenizer: Tokenizer, setting: str = "cache_dir"
) -> Iterator[tuple[Shard, float | None]]:
    """Encode parts of a corpus, each into its folder; yields the shards, and the seconds that each
    took: None for one that was found there.

    Raises UserError for a file that cannot be read, and, naming `setting`, if the disk refuses.
    """
    with show_reading(sum(part.n_bytes for part in parts.values())) as reading:
        for (folder, part), shard in zip(parts.items(), find_shards(parts), strict=True):
            if shard and shard.about["key"] == shard_key(part, tokenizer):
                reading.skip(part.n_bytes)
                yield shard, None
                continue
            if shard is None and folder.exists():
                print(f"warning: {folder} is damaged; encoding the text again", file=sys.stderr)
            began = time.perf_counter()
            shard = _write_shard(part, tokenizer, folder, reading, setting)
            yield shard, time.perf_counter() - began


def _write_shard(
    corpus: Corpus, tokenizer: Tokenizer, folder: Path, reading: Reading, setting: str
) -> Shard:
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    ending = np.array(_ending(corpus, tokenizer), np.uint32)
    encode = partial(_encode, tokenizer, ending, dtype)
    reading.skipped = []
    about: dict[str, Any] = {"key": shard_key(corpus, tokenizer), "dtype": dtype}
    for split in SPLITS:
        about[split] = {"tokens": 0, "documents": 0, "bytes": 0}
    pieces = _pieces(corpus.documents(reading))
    with publish(folder, setting) as temporary, ThreadPoolExecutor(THREADS) as pool:
        writers = {split: _Writer(temporary, split, about[split]) for split in SPLITS}
        for encoded in prefetch(pool, encode, pieces):
            for split, tokens, n_bytes, digest in encoded:
                writers[split].write(tokens, n_bytes, digest)
                reading.advance(n_bytes)
        for writer in writers.values():
            writer.close()
        bits = corpus.document_bits()
        about["skipped"] = reading.skipped
        about["has_bits"] = bits is not None
        np.array([] if bits is None else bits, "<f8").tofile(temporary / BITS)
        (temporary / META).write_text(json.dumps(about) + "\n", encoding="utf-8")
        write_sums(temporary, FILES)
    return Shard(folder, about)


class _Writer:
    """Writes the two files of one split; counts into `about`."""

    def __init__(self, folder: Path, split: str, about: dict[str, int]) -> None:
        self._tokens = (folder / f"{split}.bin").open("wb")
        self._documents = (folder / f"{split}.docs").open("wb")
        self._about, self._length = about, 0

    def write(self, tokens: np.ndarray, n_bytes: int, digest: int | None) -> None:
        """`digest`: the hash of the document that ends with these tokens; None if none does."""
        self._tokens.write(tokens.tobytes())
        self._length += len(tokens)
        self._about["tokens"] += len(tokens)
        self._about["bytes"] += n_bytes
        if digest is not None:
            self._documents.write(struct.pack("<QQ", digest, self._length))
            self._about["documents"] += 1
            self._length = 0

    def close(self) -> None:
        self._tokens.close()
        self._documents.close()


class _Piece(NamedTuple):
    """digest: the hash of the document that ends with the piece; None if it continues."""

    split: str
    text: str
    digest: int | None = None


def _pieces(documents: Iterable[Document]) -> Iterator[list[_Piece]]:
    """The pieces of all documents, as many at a time as are worth a thread's while."""
    batch: list[_Piece] = []
    size = 0
    for document in documents:
        digest, is_empty = hashlib.blake2b(digest_size=8), True
        for text in cut(document.parts):
            if size >= PIECE:
                yield batch
                batch, size = [], 0
            digest.update(text.encode("utf-8", "surrogatepass"))
            batch.append(_Piece(document.split, text))
            size, is_empty = size + len(text), False
        if not is_empty:  # otherwise the last piece is that of another document
            batch[-1] = batch[-1]._replace(digest=int.from_bytes(digest.digest(), "big"))
    if batch:
        yield batch


def _encode(
    tokenizer: Tokenizer, ending: np.ndarray, dtype: str, pieces: list[_Piece]
) -> list[tuple[str, np.ndarray, int, int | None]]:
    """Of each piece, its split, its tokens, and their number of bytes; and its digest."""
    found = []
    for split, text, digest in pieces:
        tokens = tokenizer.encode_array(text)
        if digest is not None:
            tokens = np.concatenate([tokens, ending])
        n_bytes = int(tokenizer.token_bytes[tokens].sum())
        found.append((split, tokens.astype(dtype), n_bytes, digest))
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
