"""The tokens of a corpus, from the cache or encoded into it, as arrays that are read from disk.

The name of a folder in the cache depends on the text and the tokenizer. It is complete if it
exists, and may be deleted at any time. Knows nothing of batches or models.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64, UInt64
from rich.filesize import decimal

from common.errors import UserError, counted
from common.files import remove
from data.arrays import TokenArray, Tokens
from data.cache import publish
from data.corpus import SPLITS, Corpus
from data.documents import list_skipped
from data.patterns import BPE, cut
from data.shards import BITS, Shard, cache_key, encode_shards, find_shards, shard_key
from data.tokenizer import Tokenizer, TokenizerConfig, fixed_tokenizer, train_bpe

# Where a text can be taken up, best first: after a line, a sentence, any character.
PLACES = (
    rb"[\r\n]+",
    rb"(?:[.!?]|%s)[\"')\]]*" % "|".join("。！？…।؟።။").encode(),  # noqa: RUF001
    rb"[^\x80-\xbf][\x80-\xbf]*",
)
SEARCHED, OFTEN = 1 << 16, 1e-3  # tokens that are searched for a place, and its share of them
BEFORE = 16  # tokens that end with a place: few windows of a training begin with the place alone
MUCH = 1 << 27  # bytes of text: what took long to encode stays for the next attempt


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
    nothing new is then left on disk, unless it took long.
    """
    cache, new = Path(cache_dir).expanduser(), list[Path]()
    missing = [folder for folder in (cache, *cache.parents) if not folder.exists()]
    existing = (cache, *cache.parents)[len(missing)]
    if not existing.is_dir():  # before a tokenizer is trained
        raise UserError(f"cache_dir: {existing} is a file; choose another folder")
    try:
        tokenizer = _find_tokenizer(corpus, tokenizer, cache, new)
        keys = {shard_key(part, tokenizer): part for part in corpus.shards()}
        parts = {cache / f"tokens-{key}": part for key, part in keys.items()}
        shards = []
        for shard, seconds in encode_shards(parts, tokenizer):
            shards.append(shard)
            if seconds is not None:
                new.append(shard.folder)
        dataset = join_shards(
            shards, tokenizer, corpus.deduplicate, corpus.val_fraction, corpus.adds_eos
        )
        count = sum(shard.total("documents") for shard in shards)
        if corpus.adds_eos and count < len(splits):
            are = "is" if count == 1 else "are"
            skipped = list_skipped([name for shard in shards for name in shard.about["skipped"]])
            raise UserError(
                f"data.path: has {counted(count, 'document')} that {are} not empty, and each split "
                "needs its own; give more documents, a data.separator that is in the text, or a "
                "plain text, whose end is for validation" + (skipped and f" ({skipped})")
            )
        check_length(dataset, context_length, splits)
    except UserError:
        if sum(shard.total("bytes") for shard in find_shards(new) if shard) < MUCH:
            for folder in new:
                remove(folder)
            for folder in missing:
                with suppress(OSError):  # it has other entries
                    folder.rmdir()
        raise
    return dataset


def _find_tokenizer(
    corpus: Corpus, tokenizer: TokenizerConfig | Tokenizer, cache: Path, new: list[Path]
) -> Tokenizer:
    """The tokenizer of a corpus; adds its folder in the cache to `new` if it had to be trained."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    if tokenizer.name != "bpe":
        return _make_tokenizer(corpus, tokenizer)
    key = cache_key(corpus.fingerprint(), str(tokenizer.vocab_size), BPE.tiktoken)
    folder = cache / f"bpe-{key}"
    if not folder.exists():
        new.append(folder)
    return stored_tokenizer(corpus, tokenizer, folder)


def stored_tokenizer(
    corpus: Corpus, config: TokenizerConfig, folder: Path, setting: str = "cache_dir"
) -> Tokenizer:
    """The tokenizer in `folder`; if it is missing or damaged, that of a corpus, which is written
    there. Raises UserError, naming `setting`, if the disk refuses."""
    with suppress(UserError):
        return Tokenizer.load(folder)
    found = _make_tokenizer(corpus, config)
    with publish(folder, setting) as temporary:
        found.save(temporary)
    return found


def _make_tokenizer(corpus: Corpus, config: TokenizerConfig) -> Tokenizer:
    """The tokenizer of a corpus, with a token that ends documents if they are marked. Raises
    UserError if it is not available."""
    if config.name != "bpe":
        found = fixed_tokenizer(config.name)
    elif config.vocab_size is None:
        raise UserError("tokenizer.vocab_size: is null; give the number of tokens for bpe")
    else:
        size = config.vocab_size - corpus.adds_eos
        found = train_bpe(cut(corpus.training_text()), size)
    return found.with_eos() if corpus.adds_eos else found


def join_shards(
    shards: Sequence[Shard],
    tokenizer: Tokenizer,
    deduplicate: bool,
    val_fraction: float,
    has_report: bool,
) -> Dataset:
    """All shards as one dataset.

    deduplicate: only the first of several equal documents is kept. val_fraction: 1 if all documents
    are for validation. has_report: whether it has a report.
    """
    counts = {split: sum(shard.about[split]["documents"] for shard in shards) for split in SPLITS}
    is_moved = val_fraction < 1 and max(counts.values()) == sum(counts.values()) > 1
    if deduplicate or is_moved:
        hashes, spans = _documents(shards, deduplicate)
        is_moved = is_moved and _move_one(hashes, spans)
    else:
        spans = {split: _whole_files(shards, split) for split in SPLITS}
    if val_fraction == 1:  # also of shards that were prepared with another fraction
        spans = {"train": spans["train"][:0], "val": np.concatenate([*spans.values()])}
    files = [shard.folder / f"{split}.bin" for split in SPLITS for shard in shards]
    train, val = (TokenArray(files, spans[split], shards[0].about["dtype"]) for split in SPLITS)
    has_bits = shards[0].about["has_bits"]
    return Dataset(
        tokenizer,
        train,
        val,
        np.fromfile(shards[0].folder / BITS, "<f8") if has_bits else None,
        dataset_sha256(shards, deduplicate),
        _report(shards, spans, deduplicate, is_moved) if has_report else None,
    )


def dataset_sha256(shards: Sequence[Shard], deduplicate: bool) -> str:
    known = [*(shard.sha256 for shard in shards), deduplicate]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


Spans = dict[str, Int64[np.ndarray, "_ 3"]]  # by split: the file, its first token, its last + 1


def _whole_files(shards: Sequence[Shard], split: str) -> Int64[np.ndarray, "span 3"]:
    first = SPLITS.index(split) * len(shards)
    rows = [[first + i, 0, shard.about[split]["tokens"]] for i, shard in enumerate(shards)]
    return np.array(rows, np.int64).reshape(-1, 3)


def _documents(
    shards: Sequence[Shard], deduplicate: bool
) -> tuple[dict[str, UInt64[np.ndarray, " _"]], Spans]:
    """The hashes and the spans of all documents, or of the first of those that are equal."""
    hashes, spans = {}, {}
    for split in SPLITS:
        tables = [shard.documents(split) for shard in shards]
        ends = [table[:, 1].astype(np.int64).cumsum() for table in tables]
        first = SPLITS.index(split) * len(shards)
        rows = [
            np.stack([np.full_like(end, first + i), np.append(0, end)[:-1], end], axis=1)
            for i, end in enumerate(ends)
        ]
        hashes[split], spans[split] = np.concatenate(tables)[:, 0], np.concatenate(rows)
        if deduplicate:
            _, chosen = np.unique(hashes[split], return_index=True)
            chosen.sort()
            hashes[split], spans[split] = hashes[split][chosen], spans[split][chosen]
    return hashes, spans


def _move_one(hashes: Mapping[str, UInt64[np.ndarray, " _"]], spans: Spans) -> bool:
    """Of documents that all fell into one split, move the one whose hash is nearest to the limit
    to the other split, with those that are equal to it; returns whether others are left."""
    full, empty = SPLITS if len(spans["train"]) else reversed(SPLITS)
    nearest = hashes[full].min() if full == "train" else hashes[full].max()
    moved = hashes[full] == nearest
    if moved.all():
        return False
    spans[empty], spans[full] = spans[full][moved], spans[full][~moved]
    return True


def _report(shards: Sequence[Shard], spans: Spans, deduplicate: bool, is_moved: bool) -> str:
    documents, n_bytes = (
        sum(shard.total(key) for shard in shards) for key in ("documents", "bytes")
    )
    n_val = sum(shard.about["val"]["documents"] for shard in shards)
    text = f"{counted(documents, 'document')}, {decimal(n_bytes)} of text"
    lines = [text if is_moved else f"{text}; {counted(n_val, 'document')} for validation"]
    if is_moved:
        lines.append("all documents fell into one split, so one of them was moved to the other")
    if deduplicate:
        dropped = documents - sum(map(len, spans.values()))
        lines.append(f"exact duplicates of earlier documents: {dropped:,} left out")
    lines.append(list_skipped([name for shard in shards for name in shard.about["skipped"]]))
    return "\n".join(filter(None, lines))


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
    marks = [match.end() for match in re.finditer(re.escape(document_end.encode()), text)]
    starts = np.flatnonzero(np.isin(ends[:-1], marks)) + 1
    return np.insert(starts, 0, 0)


def start_ids(tokens: Tokens, tokenizer: Tokenizer, document_end: str | None) -> tuple[int, ...]:
    """The tokens with which to begin a text, as a model that was trained on `tokens` knows them:
    those that most often end a document, or where nothing marks that, `BEFORE` tokens of the text
    up to the end of a line; of a text in which lines are rare, of a sentence; of one without
    sentences, of any character. Empty if there are none.

    A mark can have other tokens in a text than alone: o200k_base joins a full stop and line ends.
    """
    tokens = tokens[:SEARCHED]
    ends = np.cumsum(tokenizer.token_bytes[tokens])
    text = tokenizer.decode_bytes(tokens.tolist())
    places = PLACES if document_end is None else (re.escape(document_end.encode()),)
    for place in places:
        spans = np.array([match.span() for match in re.finditer(place, text)], int).reshape(-1, 2)
        first, last = np.searchsorted(ends, spans - [0, 1], side="right").T
        whole = ends[last] == spans[:, 1]  # no token goes on after the place
        pairs = zip(first[whole], last[whole] + 1, strict=True)
        rows = [(tuple(tokens[begin:end].tolist()), int(end)) for begin, end in pairs]
        for ids, count in Counter(ids for ids, _ in rows).most_common(1):
            if count >= OFTEN * len(tokens) or place == places[-1]:
                end = max(end for each, end in rows if each == ids)
                n = len(ids) if document_end is not None else max(len(ids), BEFORE)
                return tuple(tokens[max(end - n, 0) : end].tolist())
    return ()


def check_length(dataset: Dataset, context_length: int, splits: Sequence[str]) -> None:
    """Raise UserError if one of `splits` has less than a window and its targets."""
    for split in splits:
        count = len(getattr(dataset, split))
        if count <= context_length:
            problem, advice = f"data: the {split} split has {counted(count, 'token')}", "more text"
            if len(splits) == 1:  # to evaluate
                raise UserError(f"{problem}, but needs {context_length + 1}; give {advice}")
            raise UserError(
                f"{problem}, but model.context_length={context_length} needs {context_length + 1}; "
                f"give {advice}, another data.val_fraction, or a smaller model.context_length"
            )
