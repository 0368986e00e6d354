"""Token files: a corpus, encoded by a tokenizer, as memory-mapped arrays of token ids.

Promises: encoding in pieces gives the tokens of the whole text; memory use does not grow with the
text; a corpus is encoded once, into a folder of `cache_dir` whose name depends on the text and the
tokenizer. The folder is complete if it exists, and may be deleted at any time; its files are used
only if their checksums are right. Knows nothing of batches or models.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int64, UInt

from data.cache import publish
from data.corpus import SPLITS, Corpus
from data.names import end_of_name
from data.patterns import BPE
from data.tokenizer import Tokenizer, TokenizerConfig, fixed_tokenizer, train_bpe
from errors import UserError
from files import find_damage, read_json, write_sums

Result = TypeVar("Result")

_FORMAT = 2  # part of every cache key; increment it when a change here changes the files
FILES = ("meta.json", *(f"{split}.bin" for split in SPLITS))
_PIECE = 1 << 18  # characters
_THREADS = min(os.cpu_count() or 1, 8)

# Positions where every tokenizer here begins a new piece in any context: before a space that
# follows a visible character; after a line end between visible characters, except before a slash
# (o200k_base joins punctuation, line ends and slashes).
_BOUNDARY = re.compile(r"(?<=\S)(?= )|(?<=\S\n)(?=[^\s/])")


@dataclass(frozen=True)
class Dataset:
    """The tokens of both splits, read from disk when they are used.

    train, val: token ids, uint16 or uint32.
    floor_bpb: bits per byte of the validation text that no model can beat; None if unknown.
    sha256: of the tokens of both splits, to detect a changed text.
    """

    tokenizer: Tokenizer
    train: UInt[np.ndarray, " train_tokens"]
    val: UInt[np.ndarray, " val_tokens"]
    floor_bpb: float | None
    sha256: str


def prepare(
    corpus: Corpus,
    tokenizer: TokenizerConfig | Tokenizer,
    cache_dir: str | Path,
    context_length: int,
    splits: tuple[str, ...] = SPLITS,
) -> Dataset:
    """Encode `corpus`, or find it encoded in `cache_dir`.

    tokenizer: a config (bpe is trained once, on the training split), or a tokenizer.
    splits: those that must have at least `context_length` + 1 tokens.

    Raises UserError if one has fewer, or if the tokenizer or the cache folder is not available;
    nothing new is then left on disk.
    """
    cache, fingerprint = Path(cache_dir).expanduser(), corpus.fingerprint()
    untrained: Path | None = None
    if isinstance(tokenizer, TokenizerConfig):
        tokenizer, untrained = _open_tokenizer(tokenizer, corpus, cache, fingerprint)
    folder = cache / f"tokens-{_key(fingerprint, tokenizer.digest)}"
    about = _read_about(folder)
    if about is None:
        with publish(folder) as temporary:
            about = _encode(corpus, tokenizer, temporary)
            _check_length(about, context_length, splits)
    else:
        _check_length(about, context_length, splits)
    if untrained:
        with publish(untrained) as temporary:
            tokenizer.save(temporary)
    train, val = (_open_tokens(folder, split, about) for split in SPLITS)
    floor = about["val_floor_bits"]
    return Dataset(
        tokenizer,
        train,
        val,
        floor_bpb=None if floor is None else floor / about["val"]["bytes"],
        sha256=about["sha256"],
    )


def document_starts(
    tokens: UInt[np.ndarray, " tokens"], tokenizer: Tokenizer, document_end: str | None
) -> Int64[np.ndarray, " document"] | None:
    """The first token of every document; None if no text marks the end of a document.

    `tokens` begin with a document. Two documents are one if the mark between them ends inside a
    token.
    """
    if document_end is None:
        return None
    ends = np.cumsum(tokenizer.token_bytes[tokens])
    text = tokenizer.decode_bytes(tokens.tolist())
    marks = [each.end() for each in re.finditer(re.escape(document_end.encode()), text)]
    starts = np.flatnonzero(np.isin(ends[:-1], marks)) + 1
    return np.insert(starts, 0, 0)


def _open_tokens(folder: Path, split: str, about: dict[str, Any]) -> np.ndarray:
    if not about[split]["tokens"]:  # an empty file cannot be mapped
        return np.empty(0, about["dtype"])
    return np.memmap(folder / f"{split}.bin", about["dtype"], "r")


def _open_tokenizer(
    config: TokenizerConfig, corpus: Corpus, cache: Path, fingerprint: str
) -> tuple[Tokenizer, Path | None]:
    """The tokenizer of a config, and where to save it if it had to be trained."""
    if config.name != "bpe":
        return fixed_tokenizer(config.name), None
    if config.vocab_size is None:
        raise UserError("tokenizer.vocab_size: is null; give the number of tokens for bpe")
    folder = cache / f"bpe-{_key(fingerprint, str(config.vocab_size), BPE.tiktoken)}"
    try:
        return Tokenizer.load(folder), None
    except UserError:  # missing or damaged
        return train_bpe(cut(corpus.pieces("train")), config.vocab_size), folder


def cut(texts: Iterable[str], size: int = _PIECE, names: Collection[str] = ()) -> Iterator[str]:
    """The same text in pieces of about `size` characters, cut where every tokenizer begins a piece.

    The tokens of the pieces, concatenated, are therefore the tokens of the whole text. Only a
    passage of more than `size` characters without such a position (no space after a visible
    character, no plain line end) is cut after any character, and its tokens may differ; but never
    inside one of `names`, the tokenizer's `in_text`, which have no white space and are shorter.
    """
    waiting: list[str] = []
    length = 0
    for text in texts:
        waiting.append(text)
        length += len(text)
        if length <= 2 * size:
            continue
        whole = "".join(waiting)
        start = 0
        while len(whole) - start > 2 * size:
            place = _BOUNDARY.search(whole, start + size, start + 2 * size)
            end = place.start() if place else end_of_name(names, whole, start, start + size)
            yield whole[start:end]
            start = end
        waiting = [whole[start:]]
        length = len(waiting[0])
    if length:
        yield "".join(waiting)


def _encode(corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """Write the token files of both splits and `meta.json`; return the content of the latter."""
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    digest = hashlib.sha256()
    about: dict[str, Any] = {"dtype": dtype, "val_floor_bits": corpus.floor_bits("val")}

    def encode(piece: str) -> tuple[bytes, int]:
        tokens = tokenizer.encode_array(piece)
        return tokens.astype(dtype).tobytes(), int(tokenizer.token_bytes[tokens].sum())

    with ThreadPoolExecutor(_THREADS) as pool:
        for split in SPLITS:
            n_data = n_bytes = 0
            pieces = cut(corpus.pieces(split), names=tokenizer.in_text)
            with (folder / f"{split}.bin").open("wb") as file:
                for data, length in _ahead(pool, encode, pieces):
                    file.write(data)
                    digest.update(data)
                    n_data += len(data)
                    n_bytes += length
            tokens = n_data // np.dtype(dtype).itemsize
            about[split] = {"tokens": tokens, "bytes": n_bytes}
    about["sha256"] = digest.hexdigest()
    (folder / "meta.json").write_text(json.dumps(about) + "\n", encoding="utf-8")
    write_sums(folder, FILES)
    return about


def _ahead(
    pool: Executor, function: Callable[[str], Result], items: Iterable[str]
) -> Iterator[Result]:
    """The results in order; a few are computed ahead of their use."""
    running: deque[Future[Result]] = deque()
    for item in items:
        running.append(pool.submit(function, item))
        if len(running) > 2 * _THREADS:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()


def _read_about(folder: Path) -> dict[str, Any] | None:
    """The content of `meta.json`; None if the folder is missing or damaged."""
    if not os.path.lexists(folder):
        return None
    if not (damage := find_damage(folder, FILES)):
        with suppress(OSError, ValueError, KeyError, TypeError):
            about = read_json(folder / "meta.json")
            if _is_whole(about, folder):
                return about
        damage = f"{folder / 'meta.json'} is damaged"
    print(f"warning: {damage}; encoding the text again", file=sys.stderr)
    return None


def _is_whole(about: dict[str, Any], folder: Path) -> bool:
    """Whether the metadata fit the files. Raises KeyError or TypeError if a part is missing."""
    floor, width = about["val_floor_bits"], {"<u2": 2, "<u4": 4}[about["dtype"]]
    return (floor is None or 0 <= floor < math.inf) and all(
        (folder / f"{split}.bin").stat().st_size == width * about[split]["tokens"]
        and about[split]["tokens"] <= about[split]["bytes"]
        for split in SPLITS
    )


def _check_length(about: dict[str, Any], context_length: int, splits: tuple[str, ...]) -> None:
    for split in splits:
        n_tokens = about[split]["tokens"]
        if n_tokens <= context_length:
            raise UserError(
                f"data: the {split} split has {n_tokens} tokens, but "
                f"model.context_length={context_length} needs {context_length + 1}; "
                "give more text, another data.val_fraction, or a smaller model.context_length"
            )


def _key(*parts: str) -> str:
    return hashlib.sha256(json.dumps([_FORMAT, *parts]).encode()).hexdigest()[:32]
