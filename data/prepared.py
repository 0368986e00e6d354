"""A folder of shards that several machines can write, each its own.

    <folder>/shards.json          number of shards, tokenizer, what a document is
             tokenizer/           shared by all shards
             00003-of-00064/...   a shard (see data.shards)

A shard depends on no other shard. Writing it again does nothing unless its files have changed.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import filelock
from rich.filesize import decimal

from data.cache import publish
from data.documents import Documents, TextConfig, hash_of
from data.progress import show_reading
from data.shards import Shard, find_shards, shard_key, write_shard
from data.sources import Source
from data.tokenizer import Tokenizer, TokenizerConfig
from data.tokens import Dataset, check_length, join_shards, make_tokenizer
from errors import UserError, counted
from files import read_json, remove, replace_text

MANIFEST = "shards.json"
MANIFEST_BYTES = 1 << 27


def is_prepared(path: Path) -> bool:
    """Whether this is a folder of prepared shards."""
    try:
        return (path / MANIFEST).is_file()
    except (OSError, ValueError):
        return False


class Prepared:
    """The prepared shards in `folder`.

    Raises UserError, naming `data.path`, if a shard is missing or damaged, or naming a setting of
    `config` that has no effect on them.
    """

    def __init__(self, config: TextConfig, folder: Path) -> None:
        self.config, self.folder = config, folder
        try:
            about = read_json(folder / MANIFEST, MANIFEST_BYTES)
            self.count = int(about["shards"])
            self.tokenizer_config = TokenizerConfig(**about["tokenizer"])
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
        self.description = f"reading {counted(self.count, 'prepared shard')} in {folder}"

    def open(
        self, tokenizer: TokenizerConfig | Tokenizer, context_length: int, splits: tuple[str, ...]
    ) -> Dataset:
        """The dataset, if it was encoded by this tokenizer. See `data.tokens.prepare`."""
        dataset = join_shards(
            self._shards(),
            self._check_tokenizer(tokenizer),
            self.config.deduplicate,
            self.config.val_fraction,
            has_report=True,
        )
        check_length({split: len(getattr(dataset, split)) for split in splits}, context_length)
        return dataset

    def _shards(self) -> list[Shard]:
        folders = [self.folder / _name(number, self.count) for number in range(self.count)]
        shards = find_shards(folders)
        if missing := [str(n) for n, shard in enumerate(shards) if shard is None]:
            raise UserError(
                f"data.path: {self.folder} lacks {len(missing)} of {self.count} shards; these are "
                f"missing or damaged: {', '.join(missing[:20])}; write them with python prepare.py "
                f"to={shlex.quote(str(self.folder))} {self._tokenizer_settings} "
                f"shards={self.count} shard=NUMBER and the same data"
            )
        return [shard for shard in shards if shard]

    def _check_tokenizer(self, tokenizer: TokenizerConfig | Tokenizer) -> Tokenizer:
        try:
            own = Tokenizer.load(self.folder / "tokenizer")
        except UserError as error:
            raise UserError(
                f"data.path: {self.folder} has no intact tokenizer ({error}); write it again with "
                "prepare.py and the same settings"
            ) from error
        if isinstance(tokenizer, Tokenizer):
            if (tokenizer.digest, tokenizer.eos_ids) != (own.digest, own.eos_ids):
                raise UserError(
                    f"data.path: {self.folder} was prepared with another tokenizer than that of "
                    "the run; give the files themselves"
                )
        elif tokenizer != self.tokenizer_config:
            raise UserError(
                f"tokenizer: {self.folder} was prepared with another one; give "
                f"{self._tokenizer_settings}"
            )
        return own

    @property
    def _tokenizer_settings(self) -> str:
        size = self.tokenizer_config.vocab_size
        return f"tokenizer={self.tokenizer_config.name}" + (
            "" if size is None else f" tokenizer.vocab_size={size}"
        )


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
    parts = {number: Documents(corpus.config, sources) for number, sources in files.items()}
    tokenizer = _shared_tokenizer(corpus, config, folder)
    with show_reading(sum(part.n_bytes for part in parts.values())) as reading:
        for number, part in parts.items():
            target, began = folder / _name(number, count), time.perf_counter()
            (shard,) = find_shards([target])
            if shard and shard.about["key"] == shard_key(part, tokenizer):
                reading.skip(part.n_bytes)
                done = "prepared before"
            else:
                remove(target)
                shard = write_shard(part, tokenizer, target, reading, "to")
                size = shard.total("bytes")
                done = f"{size / 1e6 / (time.perf_counter() - began):.1f} MB/s"
            yield f"shard {number} of {count}: {_summary(part.sources, shard, done)}"


def _summary(files: Sequence[Source], shard: Shard, done: str) -> str:
    if not files:
        return "no files, since there are fewer files than shards"
    return (
        f"{counted(len(files), 'file')}, {counted(shard.total('documents'), 'document')}, "
        f"{decimal(shard.total('bytes'))} of text ({done})"
    )


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


def _shared_tokenizer(corpus: Documents, config: TokenizerConfig, folder: Path) -> Tokenizer:
    """The tokenizer of all shards. One process trains it while the others wait."""
    target = folder / "tokenizer"
    with filelock.FileLock(folder / ".lock"):
        with suppress(UserError):  # it is missing or damaged
            return Tokenizer.load(target)
        tokenizer = make_tokenizer(corpus, config)
        with publish(target, "to") as temporary:
            tokenizer.save(temporary)
        return tokenizer
