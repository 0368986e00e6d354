"""Token files: a corpus, encoded by a tokenizer, as memory-mapped arrays of token ids.

Promises: encoding in pieces gives the tokens of the whole text; memory use does not grow with the
text; a corpus is encoded once, into a folder of `cache_dir` whose name depends on the text and the
tokenizer. The folder is complete if it exists, and may be deleted at any time; its files are used
only if their checksums are right. Knows nothing of batches or models.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from data.arrays import Tokens
from data.cache import publish
from data.corpus import Corpus
from data.documents import Documents
from data.joining import content_of, join
from data.patterns import BPE
from data.pieces import SPLITS, THREADS, ahead, cache_key, cut
from data.prepared import Prepared
from data.progress import show_reading
from data.shards import PART_BYTES, Encoder, Part, group, read_shards
from data.tokenizer import Tokenizer, TokenizerConfig, fixed_tokenizer, train_bpe
from errors import UserError, counted
from files import find_damage, read_json, remove, write_sums

BITS = "val.bits"
FILES = ("meta.json", BITS, *(f"{split}.bin" for split in SPLITS))


@dataclass(frozen=True)
class Dataset:
    """The tokens of both splits, read from disk when they are used.

    train, val: token ids, uint16 or uint32.
    val_bits: the information of each validation document, which no model can beat; None if unknown.
    sha256: of the tokens of both splits, to detect a changed text.
    report: what was found in a corpus of documents.
    """

    tokenizer: Tokenizer
    train: Tokens
    val: Tokens
    val_bits: Float64[np.ndarray, " document"] | None
    sha256: str
    report: str | None = None


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
    if isinstance(corpus, Documents | Prepared):
        return _prepare_documents(corpus, tokenizer, cache_dir, context_length, splits)
    cache, fingerprint = Path(cache_dir).expanduser(), corpus.fingerprint()
    untrained: Path | None = None
    if isinstance(tokenizer, TokenizerConfig):
        texts = partial(corpus.pieces, "train")
        tokenizer, untrained = open_tokenizer(tokenizer, texts, cache, fingerprint)
    folder = cache / f"tokens-{cache_key(fingerprint, tokenizer.digest, *FILES)}"
    about = _read_about(folder)
    if about is None:
        with publish(folder) as temporary:
            about = _encode(corpus, tokenizer, temporary)
            check_length({each: about[each]["tokens"] for each in splits}, context_length)
    else:
        check_length({each: about[each]["tokens"] for each in splits}, context_length)
    if untrained:
        with publish(untrained) as temporary:
            tokenizer.save(temporary)
    train, val = (_open_tokens(folder, split, about) for split in SPLITS)
    bits = None if about["val_documents"] is None else np.fromfile(folder / BITS, "<f8")
    return Dataset(tokenizer, train, val, bits, about["sha256"])


def _prepare_documents(
    corpus: Documents | Prepared,
    tokenizer: TokenizerConfig | Tokenizer,
    cache_dir: str | Path,
    context_length: int,
    splits: tuple[str, ...],
) -> Dataset:
    """As `prepare`, but shards and parts of shards that are encoded already are used again."""
    cache = Path(cache_dir).expanduser()
    new: list[Path] = []
    parts: list[Part] = []
    try:
        if isinstance(corpus, Prepared):
            corpus.check_tokenizer(tokenizer)
            tokenizer, parts = corpus.tokenizer, corpus.parts
        else:
            tokenizer = _document_tokenizer(corpus, tokenizer, cache, new)
            _encode_documents(corpus, tokenizer, cache, new, parts)
        digest = content_of(parts, corpus.config)
        joined = cache / f"joined-{digest[:32]}"
        if not joined.exists():
            new.append(joined)
        arrays, report = join(parts, corpus.config, joined)
        n_documents = sum(each.about["documents"] for each in parts)
        if not n_documents:
            raise UserError(
                f"data.path: {corpus.config.path} has no documents that are not empty; give others"
            )
        if len(splits) > 1 and n_documents == 1:
            raise UserError(
                f"data.path: {corpus.config.path} has only one document, and each split needs its "
                "own; give more documents, or a plain text, whose last tenth is for validation"
            )
        check_length({each: len(arrays[each]) for each in splits}, context_length)
    except UserError:
        # What took long to encode stays for the next attempt.
        encoded = [each for parts in read_shards(new) for each in parts]
        if sum(each.about["bytes"] for each in encoded) < PART_BYTES:
            for folder in new:
                remove(folder)
        raise
    return Dataset(tokenizer, arrays["train"], arrays["val"], None, digest, report)


def _document_tokenizer(
    corpus: Documents, tokenizer: TokenizerConfig | Tokenizer, cache: Path, new: list[Path]
) -> Tokenizer:
    """The tokenizer of documents; adds its folder to `new` if it had to be trained."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    tokenizer, untrained = open_tokenizer(
        tokenizer, corpus.sample, cache, corpus.fingerprint(), n_special=1
    )
    if untrained:
        new.append(untrained)
        with publish(untrained) as temporary:
            tokenizer.save(temporary)
    return tokenizer.with_document_end()


def _encode_documents(
    corpus: Documents, tokenizer: Tokenizer, cache: Path, new: list[Path], parts: list[Part]
) -> None:
    """Add the parts of all shards to `parts`, and to `new` the folders of new shards."""
    with show_reading(sum(each.size or 0 for each in corpus.sources)) as reading:
        encoder = Encoder(corpus.config, tokenizer, reading)
        groups = group(corpus.sources)
        folders = [cache / f"documents-{encoder.key(files)}" for files in groups]
        new += [each for each in folders if not each.exists()]
        for files, folder, found in zip(groups, folders, read_shards(folders), strict=True):
            parts += encoder.shard(files, folder, found)


def document_starts(
    tokens: Tokens, tokenizer: Tokenizer, document_end: str | None
) -> Int64[np.ndarray, " document"] | None:
    """The first token of every document; None if no text marks the end of a document.

    `tokens` begin with a document. Two documents are one if the mark between them ends inside a
    token.
    """
    if document_end is None:
        return None
    tokens = tokens[:]
    ends = np.cumsum(tokenizer.token_bytes[tokens])
    text = tokenizer.decode_bytes(tokens.tolist())
    marks = [each.end() for each in re.finditer(re.escape(document_end.encode()), text)]
    starts = np.flatnonzero(np.isin(ends[:-1], marks)) + 1
    return np.insert(starts, 0, 0)


def _open_tokens(folder: Path, split: str, about: dict[str, Any]) -> np.ndarray:
    if not about[split]["tokens"]:  # an empty file cannot be mapped
        return np.empty(0, about["dtype"])
    return np.memmap(folder / f"{split}.bin", about["dtype"], "r")


def open_tokenizer(
    config: TokenizerConfig,
    texts: Callable[[], Iterable[str]],
    cache: Path,
    fingerprint: str,
    n_special: int = 0,
) -> tuple[Tokenizer, Path | None]:
    """The tokenizer of a config, and where to save it if it had to be trained on `texts`.

    n_special: how many tokens of `vocab_size` are left for special ones.
    """
    if config.name != "bpe":
        return fixed_tokenizer(config.name), None
    if config.vocab_size is None:
        raise UserError("tokenizer.vocab_size: is null; give the number of tokens for bpe")
    size = config.vocab_size - n_special
    folder = cache / f"bpe-{cache_key(fingerprint, str(size), BPE.tiktoken)}"
    try:
        return Tokenizer.load(folder), None
    except UserError:  # missing or damaged
        return train_bpe(cut(texts()), size), folder


def _encode(corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """Write the token files of both splits and `meta.json`; return the content of the latter."""
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    digest = hashlib.sha256()
    about: dict[str, Any] = {"dtype": dtype}

    def encode(piece: str) -> tuple[bytes, int]:
        tokens = tokenizer.encode_array(piece)
        return tokens.astype(dtype).tobytes(), int(tokenizer.token_bytes[tokens].sum())

    with ThreadPoolExecutor(THREADS) as pool:
        for split in SPLITS:
            n_data = n_bytes = 0
            pieces = cut(corpus.pieces(split))
            with (folder / f"{split}.bin").open("wb") as file:
                for data, length in ahead(pool, encode, pieces):
                    file.write(data)
                    digest.update(data)
                    n_data += len(data)
                    n_bytes += length
            tokens = n_data // np.dtype(dtype).itemsize
            about[split] = {"tokens": tokens, "bytes": n_bytes}
    about["sha256"] = digest.hexdigest()
    bits = corpus.document_bits("val")
    about["val_documents"] = None if bits is None else len(bits)
    np.array([] if bits is None else bits, "<f8").tofile(folder / BITS)
    (folder / "meta.json").write_text(json.dumps(about) + "\n", encoding="utf-8")
    write_sums(folder, FILES)
    return about


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
    documents, width = about["val_documents"] or 0, {"<u2": 2, "<u4": 4}[about["dtype"]]
    return (folder / BITS).stat().st_size == 8 * documents and all(
        (folder / f"{split}.bin").stat().st_size == width * about[split]["tokens"]
        and about[split]["tokens"] <= about[split]["bytes"]
        for split in SPLITS
    )


def check_length(n_tokens: Mapping[str, int], context_length: int) -> None:
    """Raise UserError for a split that has less than a window and its targets."""
    for split, count in n_tokens.items():
        if count <= context_length:
            problem, advice = f"data: the {split} split has {counted(count, 'token')}", "more text"
            if len(n_tokens) == 1:  # to evaluate
                raise UserError(f"{problem}, but needs {context_length + 1}; give {advice}")
            raise UserError(
                f"{problem}, but model.context_length={context_length} needs {context_length + 1}; "
                f"give {advice}, another data.val_fraction, or a smaller model.context_length"
            )
