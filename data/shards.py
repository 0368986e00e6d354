"""Shards: the documents of some files as tokens on disk, in parts that are written whole.

    <name>/00000/meta.json     number of documents, bytes of text, ...
                 train.bin     tokens of the training documents, one after the other
                 train.docs    of each: 64 bits of its hash, and its number of tokens
                 val.bin       the same of the validation documents
                 val.docs
                 SHA256SUMS
           00001/...

Promises: memory does not grow with the documents; a process that is killed loses at most the part
that it was writing; a part is used only if its checksums are right. Knows nothing of batches.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from jaxtyping import UInt64

from data.cache import publish
from data.documents import FIRST, Document, Sides, digest_of, read_documents
from data.pieces import PIECE, SPLITS, THREADS, ahead, cache_key, cut
from data.progress import Reading
from data.sources import Source
from data.text import TextConfig
from data.tokenizer import Tokenizer
from files import SUMS, find_damage, read_json, read_text, remove, write_sums

FILES = ("meta.json", *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "docs")))
PART_BYTES = 1 << 27  # of text in a part, at least, if there is more
BATCH = PIECE  # characters that a thread encodes at a time, at least
ALONE = 64  # as many small files have a shard each; more share one
SMALL = 1 << 20  # bytes

Documents = UInt64[np.ndarray, "_ 2"]


class Part(NamedTuple):
    """A folder of tokens that is whole."""

    folder: Path
    about: dict[str, Any]

    def documents(self, split: str) -> Documents:
        """Of each document of `split`, its hash and its number of tokens."""
        return np.fromfile(self.folder / f"{split}.docs", "<u8").reshape(-1, 2)

    @property
    def sha256(self) -> str:
        """Depends on all documents of the part, and not on where they come from."""
        sums = [each for each in read_text(self.folder / SUMS).splitlines() if FILES[0] not in each]
        return hashlib.sha256("\n".join(sums).encode()).hexdigest()


def group(sources: Sequence[Source]) -> list[list[Source]]:
    """The files of each shard: small ones can share one. Adding a file changes at most one shard,
    unless the number of small files reaches the next power of two."""
    small = [each for each in sources if (each.size or SMALL) < SMALL]
    if len(small) <= ALONE:
        return [[each] for each in sources]
    buckets: list[list[Source]] = [[] for _ in range(1 << (len(small) // ALONE).bit_length())]
    for each in small:  # by its own name: the folder may be moved
        buckets[digest_of(Path(each.name).name) % len(buckets)].append(each)
    large = [[each] for each in sources if (each.size or SMALL) >= SMALL]
    return large + [each for each in buckets if each]


@dataclass(frozen=True)
class Encoder:
    """Encodes shards of the documents that `config` describes. `setting` names their folder."""

    config: TextConfig
    tokenizer: Tokenizer
    reading: Reading
    setting: str = "cache_dir"

    @property
    def dtype(self) -> str:
        return "<u2" if self.tokenizer.vocab_size <= 1 << 16 else "<u4"

    def key(self, sources: Iterable[Source]) -> str:
        """A name for what `shard` writes."""
        rules = (self.config.rules, self.tokenizer.digest, json.dumps(self.tokenizer.document_end))
        return cache_key(*rules, *(each.fingerprint for each in sources))

    def shard(self, sources: Sequence[Source], folder: Path, found: Sequence[Part]) -> list[Part]:
        """The parts of a shard, of which those after the `found` ones are encoded.

        Raises UserError for a file that cannot be read, and if the disk refuses.
        """
        if found and found[-1].about["is_last"]:
            self.reading.skip(sources)
            return list(found)
        with _locked(folder):
            (parts,) = read_shards([folder])  # another process may have written some meanwhile
            return self._encode_rest(sources, folder, parts)

    def _encode_rest(
        self, sources: Sequence[Source], folder: Path, parts: list[Part]
    ) -> list[Part]:
        skipped: dict[str, str] = {}
        documents = self._documents(sources, skipped)
        for document in islice(documents, sum(each.about["documents"] for each in parts)):
            if not isinstance(document, str):
                deque(document, maxlen=0)
        with ThreadPoolExecutor(THREADS) as pool:
            results = ahead(pool, self._encode, self._batches(documents))
            while not (parts and parts[-1].about["is_last"]):
                target = folder / f"{len(parts):05}"
                with publish(target, self.setting) as temporary:
                    about = self._write(temporary, results, skipped)
                parts.append(Part(target, about))
        return parts

    def _documents(self, sources: Iterable[Source], skipped: dict[str, str]) -> Iterator[Document]:
        for source in sources:
            yield from read_documents(source, self.config, self.reading, skipped)

    def _batches(self, documents: Iterable[Document]) -> Iterator[_Batch]:
        """Pieces of text to encode, with the hash of the document that each one ends."""
        sides, batch, size = Sides.of(self.config.val_fraction), _Batch({}, 0), 0
        for document in documents:
            parts = [document] if isinstance(document, str) else document
            pieces = cut(parts)
            following: str | None
            side, digest, following = "", hashlib.blake2b(digest_size=8), next(pieces)
            while following is not None:
                piece, following = following, next(pieces, None)
                side = side or sides(digest_of(piece[:FIRST]))
                digest.update(piece.encode("utf-8", "surrogatepass"))
                ends = following is None
                key = int.from_bytes(digest.digest(), "big") if ends else None
                batch.items.setdefault(side, []).append((piece, key))
                size += len(piece)
                batch = batch._replace(n_ended=batch.n_ended + ends, is_open=not ends)
                if size >= BATCH:
                    yield batch
                    batch, size = _Batch({}, 0), 0
        if batch.items:
            yield batch

    def _encode(self, batch: _Batch) -> _Encoded:
        return _Encoded(
            {side: self._encode_side(items) for side, items in batch.items.items()},
            batch.n_ended,
            batch.is_open,
        )

    def _encode_side(self, items: Sequence[tuple[str, int | None]]) -> _EncodedSide:
        end = np.array(self.tokenizer.document_end, dtype=np.uint32)
        arrays, ended, count = [], [], 0
        for text, digest in items:
            tokens = self.tokenizer.encode_array(text)
            arrays.append(tokens)
            count += len(tokens)
            if digest is not None:
                arrays.append(end)
                ended.append((digest, count + len(end)))
                count = 0
        encoded = np.concatenate(arrays)
        n_bytes = int(self.tokenizer.token_bytes[encoded].sum())
        documents = np.array(ended, dtype="<u8").reshape(-1, 2)
        return _EncodedSide(encoded.astype(self.dtype), documents, count, n_bytes)

    def _write(
        self, folder: Path, results: Iterator[_Encoded], skipped: dict[str, str]
    ) -> dict[str, Any]:
        """Write the next part; returns the content of its `meta.json`."""
        about: dict[str, Any] = {"dtype": self.dtype, "documents": 0, "bytes": 0, "is_last": True}
        tokens = {split: (folder / f"{split}.bin").open("wb") for split in SPLITS}
        documents = {split: (folder / f"{split}.docs").open("wb") for split in SPLITS}
        unfinished = dict.fromkeys(SPLITS, 0)  # tokens of the document that has begun
        for result in results:
            for side, (encoded, ended, rest, n_bytes) in result.sides.items():
                tokens[side].write(encoded.tobytes())
                if len(ended):
                    ended[0, 1] += unfinished[side]
                    unfinished[side] = 0
                    documents[side].write(ended.tobytes())
                unfinished[side] += rest
                about["bytes"] += n_bytes
                self.reading.advance(n_bytes)
            about["documents"] += result.n_ended
            if about["bytes"] >= PART_BYTES and not result.is_open:
                about["is_last"] = False
                break
        for file in (*tokens.values(), *documents.values()):
            file.close()
        about["skipped"] = dict(skipped)
        (folder / "meta.json").write_text(json.dumps(about) + "\n", encoding="utf-8")
        write_sums(folder, FILES)
        return about


class _Batch(NamedTuple):
    """items: by split, pieces of text and the hash of the document that ends with the piece, if one
    does. n_ended: the number of these. is_open: the last document goes on in the next batch."""

    items: dict[str, list[tuple[str, int | None]]]
    n_ended: int
    is_open: bool = False


class _EncodedSide(NamedTuple):
    """rest: the tokens after the last document that ends here."""

    tokens: np.ndarray
    documents: Documents
    rest: int
    n_bytes: int


class _Encoded(NamedTuple):
    sides: dict[str, _EncodedSide]
    n_ended: int
    is_open: bool


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process writes into `folder`, and remove what killed ones have left."""
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            _say_waiting(folder.parent)
            lock.acquire(timeout=-1)
    except (OSError, NotImplementedError):  # a disk that refuses, or knows no locks
        yield
        return
    try:
        for left in folder.glob(".[0-9]*"):
            remove(left)
        yield
    finally:
        lock.release()


@cache
def _say_waiting(folder: Path) -> None:
    """Say once that another process encodes the same files: one may wait for it at each shard."""
    print(f"waiting for another process that writes into {folder}", file=sys.stderr)


def read_shards(folders: Iterable[Path]) -> list[list[Part]]:
    """The parts of each shard that are whole, from the first on; none after one that is damaged."""
    paths = [sorted(folder.glob("[0-9]" * 5)) for folder in folders]
    with ThreadPoolExecutor(THREADS) as pool:  # since checksums of many files take long
        found = pool.map(_read_part, chain.from_iterable(paths))
        return [_first_parts(list(islice(found, len(each)))) for each in paths]


def _first_parts(found: Iterable[Part | None]) -> list[Part]:
    parts: list[Part] = []
    for part in found:
        if part is None or part.folder.name != f"{len(parts):05}":
            break
        parts.append(part)
        if part.about["is_last"]:
            break
    return parts


def _read_part(folder: Path) -> Part | None:
    if find_damage(folder, FILES):
        return None
    with suppress(OSError, ValueError, KeyError, TypeError):
        about = read_json(folder / "meta.json")
        if about["dtype"] in ("<u2", "<u4") and about["documents"] >= 0:
            return Part(folder, about)
    return None
