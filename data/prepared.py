"""A folder of shards that several machines can write, each its own.

    <folder>/shards.json          number of shards, tokenizer, what a document is
             tokenizer/           shared by all shards
             00003-of-00064/...   a shard (see data.shards)

A shard depends on no other shard. Writing it again does nothing unless its files have changed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import filelock
from rich.filesize import decimal

from common.errors import UserError, counted
from common.files import read_json, remove, replace_text
from data.documents import Documents, TextConfig, hash_of
from data.shards import MANIFEST, encode_shards, find_shards
from data.sources import Source
from data.tokenizer import Tokenizer, TokenizerConfig
from data.tokens import Dataset, join_shards, stored_tokenizer

MANIFEST_BYTES = 1 << 27


def open_prepared(
    config: TextConfig,
    folder: Path,
    tokenizer: TokenizerConfig | Tokenizer,
    say: Callable[[str], object],
) -> Dataset:
    """The prepared shards in `folder`. say: is called with what is read.

    Raises UserError, naming `data.path`, if a shard is missing or damaged, or naming a setting that
    has no effect on them.
    """
    count, prepared_with = _read_manifest(config, folder)
    say(f"reading {counted(count, 'prepared shard')} in {folder}")
    shards = find_shards([folder / _name(number, count) for number in range(count)])
    if missing := [str(n) for n, shard in enumerate(shards) if shard is None]:
        raise UserError(
            f"data.path: {folder} lacks {len(missing)} of {count} shards; these are "
            f"missing or damaged: {', '.join(missing[:20])}; write them with python prepare.py "
            f"to={shlex.quote(str(folder))} {_settings(prepared_with)} "
            f"shards={count} shard=NUMBER and the same data"
        )
    own = _check_tokenizer(tokenizer, prepared_with, folder)
    whole = [shard for shard in shards if shard]
    return join_shards(whole, own, config.deduplicate, config.val_fraction, has_report=True)


def _read_manifest(config: TextConfig, folder: Path) -> tuple[int, TokenizerConfig]:
    """The number of shards, and their tokenizer. Raises UserError for a setting that has no effect
    on them."""
    try:
        about = read_json(folder / MANIFEST, MANIFEST_BYTES)
        count, prepared_with = int(about["shards"]), TokenizerConfig(**about["tokenizer"])
        field, divider, fraction = about["rules"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"data.path: {folder / MANIFEST} is damaged ({error}); prepare the folder again"
        ) from error
    if config.val_fraction not in (fraction, 1):
        raise UserError(
            f"data.val_fraction: the shards in {folder} were prepared with {fraction}; give "
            f"data.val_fraction={fraction}"
        )
    for name, value, known in (
        ("field", config.field, ("text", field)),
        ("separator", config.divider, (None, divider)),
        ("exclude", config.exclude, (None,)),
    ):
        if value not in known:
            raise UserError(
                f"data.{name}: has no effect on the shards in {folder}; prepare.py decided it; "
                "leave it out"
            )
    return count, prepared_with


def _check_tokenizer(
    tokenizer: TokenizerConfig | Tokenizer, prepared_with: TokenizerConfig, folder: Path
) -> Tokenizer:
    """The tokenizer of the shards. Raises UserError if it is not the one that is asked for."""
    try:
        own = Tokenizer.load(folder / "tokenizer")
    except UserError as error:
        raise UserError(
            f"data.path: {folder} has no intact tokenizer ({error}); write it again with "
            "prepare.py and the same settings"
        ) from error
    if isinstance(tokenizer, Tokenizer):
        if (tokenizer.digest, tokenizer.eos_ids) != (own.digest, own.eos_ids):
            raise UserError(
                f"data.path: {folder} was prepared with another tokenizer than that of the run; "
                "give the files themselves"
            )
    elif tokenizer != prepared_with:
        raise UserError(
            f"tokenizer: {folder} was prepared with another one; give {_settings(prepared_with)}"
        )
    return own


def _settings(tokenizer: TokenizerConfig) -> str:
    """A tokenizer on the command line."""
    size = "" if tokenizer.vocab_size is None else f" tokenizer.vocab_size={tokenizer.vocab_size}"
    return f"tokenizer={tokenizer.name}{size}"


def write_shards(
    corpus: Documents, config: TokenizerConfig, folder: Path, numbers: Iterable[int], count: int
) -> Iterator[str]:
    """Write some of `count` shards of a corpus into `folder`; yields what was done for each.

    Raises UserError, naming `to`, if the folder has shards of other settings.
    """
    shard_of = _check_manifest(corpus, config, folder, count)
    files: dict[int, list[Source]] = {number: [] for number in numbers}
    for source, number in zip(corpus.sources, shard_of, strict=True):
        if number in files:
            files[number].append(source)
    parts = {
        folder / _name(number, count): Documents(corpus.config, sources)
        for number, sources in files.items()
    }
    with filelock.FileLock(folder / ".lock"):  # one process trains it while the others wait
        tokenizer = stored_tokenizer(corpus, config, folder / "tokenizer", "to")
    encoded = encode_shards(parts, tokenizer, "to")
    for (number, sources), (shard, seconds) in zip(files.items(), encoded, strict=True):
        found = "no files, since there are fewer files than shards"
        if sources:
            size = shard.total("bytes")
            speed = f"{size / 1e6 / seconds:.1f} MB/s" if seconds else "prepared before"
            documents = counted(shard.total("documents"), "document")
            found = (
                f"{counted(len(sources), 'file')}, {documents}, {decimal(size)} of text ({speed})"
            )
        yield f"shard {number} of {count}: {found}"


def assign(sources: Sequence[Source], count: int) -> list[int]:
    """The shard of each file: the smallest so far, largest files first."""
    found, sizes, lengths = dict.fromkeys(range(len(sources)), 0), [0] * count, [0] * count
    for index in sorted(found, key=lambda i: (-(sources[i].size or 0), sources[i].name)):
        smallest = min(range(count), key=lambda i: (sizes[i], lengths[i]))
        found[index] = smallest
        sizes[smallest] += sources[index].size or 0
        lengths[smallest] += 1
    return list(found.values())


def _name(number: int, count: int) -> str:
    return f"{number:05}-of-{count:05}"


def _check_manifest(
    corpus: Documents, tokenizer: TokenizerConfig, folder: Path, count: int
) -> list[int]:
    """Write what all shards have in common, or compare it with what another one wrote. Returns the
    shard of each file, which stays when sizes change: otherwise files could be in none, or two."""
    own: dict[str, Any] = {
        "shards": count,
        "tokenizer": asdict(tokenizer),
        "rules": json.loads(corpus.config.rules),
        "files": hash_of("\n".join(Path(source.name).name for source in corpus.sources)),
    }
    file = folder / MANIFEST
    if file.exists():
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = read_json(file, MANIFEST_BYTES)
            shard_of = found.pop("shard_of")
            if found == own and len(shard_of) == len(corpus.sources):
                return shard_of
        if any(folder.glob("*-of-*")):
            raise UserError(
                f"to: {folder} has shards of other settings or files ({file}); give the same ones, "
                "or another folder"
            )
        remove(folder / "tokenizer")  # of a first attempt that failed
        remove(file)
    if folder.is_dir() and any(
        not entry.name.startswith(".") and entry.name != "tokenizer" for entry in folder.iterdir()
    ):
        raise UserError(f"to: {folder} has other files; give a new folder")
    own["shard_of"] = assign(corpus.sources, count)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(file, json.dumps(own, indent=2) + "\n")
    except OSError as error:
        raise UserError(
            f"to: {folder} cannot be written ({error.strerror}); give another folder"
        ) from error
    return own["shard_of"]
