"""A folder of shards that several machines can write, each its own.

    <folder>/shards.json                 number of shards, tokenizer, what a document is
             tokenizer/                  shared by all shards
             00003-of-00064-<key>/...    a shard (see data.shards); the key depends on its files

Promises: a shard depends on no other shard. All shards share the tokenizer, and every process would
train the same one. Writing a shard again does nothing unless its files have changed.
"""

from __future__ import annotations

import json
import os
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
from data.documents import Documents, digest_of
from data.pieces import cut
from data.progress import show_reading
from data.shards import Encoder, Part, read_shards
from data.sources import Source
from data.text import TextConfig
from data.tokenizer import Tokenizer, TokenizerConfig, fixed_tokenizer, train_bpe
from errors import UserError, counted
from files import read_json, remove, replace_text

MANIFEST = "shards.json"
MANIFEST_BYTES = 1 << 27


class Prepared:
    """A corpus of prepared shards, in `folder`. See `data.corpus.Corpus`.

    Raises UserError, naming `data.path`, if a shard is missing or damaged.
    """

    def __init__(self, config: TextConfig, folder: Path) -> None:
        self.config, self.folder = config, folder
        try:
            about = read_json(folder / MANIFEST, MANIFEST_BYTES)
            count = int(about["shards"])
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
        try:
            self.tokenizer = Tokenizer.load(folder / "tokenizer")
        except UserError as error:
            raise UserError(
                f"data.path: {folder} has no intact tokenizer ({error}); write it again with "
                "prepare.py and the same settings"
            ) from error
        prefixes = (_prefix(number, count) for number in range(count))
        folders = (path for each in prefixes for path in sorted(folder.glob(f"{each}-*"))[:1])
        found = [each for each in read_shards(folders) if each and each[-1].about["is_last"]]
        if len(found) < count:
            have = {int(parts[0].folder.parent.name[:5]) for parts in found}
            missing = [str(each) for each in range(count) if each not in have]
            raise UserError(
                f"data.path: {folder} has {len(found)} of {count} shards; these are missing or "
                f"damaged: {', '.join(missing[:20])}; write them with python prepare.py "
                f"to={shlex.quote(str(folder))} {self._tokenizer_settings} shards={count} "
                "shard=NUMBER and the same data"
            )
        self.parts: list[Part] = [each for parts in found for each in parts]
        self.description = f"reading {counted(count, 'prepared shard')} in {folder}"

    def fingerprint(self) -> str:
        return "prepared:" + ":".join(each.sha256 for each in self.parts)

    def pieces(self, split: str) -> Iterator[str]:
        raise UserError(f"data.path: {self.folder} has tokens only; give the files themselves")

    def document_bits(self, split: str) -> None:
        return None

    def check_tokenizer(self, tokenizer: TokenizerConfig | Tokenizer) -> None:
        """Raises UserError unless the shards are encoded by this tokenizer."""
        if isinstance(tokenizer, Tokenizer):
            if (tokenizer.digest, tokenizer.ends) != (self.tokenizer.digest, self.tokenizer.ends):
                raise UserError(
                    f"data.path: {self.folder} was prepared with another tokenizer than that of "
                    "the run; give the files themselves"
                )
        elif tokenizer != self.tokenizer_config:
            raise UserError(
                f"tokenizer: {self.folder} was prepared with another one; give "
                f"{self._tokenizer_settings}"
            )

    @property
    def _tokenizer_settings(self) -> str:
        size = self.tokenizer_config.vocab_size
        return f"tokenizer={self.tokenizer_config.name}" + (
            "" if size is None else f" tokenizer.vocab_size={size}"
        )


def is_prepared(path: str) -> bool:
    """Whether a path is that of a folder of prepared shards."""
    with suppress(OSError, ValueError):
        return Path(os.path.expanduser(path), MANIFEST).is_file()  # noqa: PTH111
    return False


def write_shards(
    corpus: Documents, tokenizer: TokenizerConfig, folder: Path, numbers: Iterable[int], count: int
) -> Iterator[str]:
    """Write some of `count` shards of a corpus into `folder`; yields what was done for each.

    Raises UserError, naming `to`, if the folder has shards of other settings.
    """
    shard_of = _check_manifest(corpus, tokenizer, folder, count)
    whole = _shared_tokenizer(corpus, tokenizer, folder)
    chosen = [
        (number, [each for each, n in zip(corpus.sources, shard_of, strict=True) if n == number])
        for number in numbers
    ]
    with show_reading(sum(each.size or 0 for _, files in chosen for each in files)) as reading:
        encoder = Encoder(corpus.config, whole, reading, "to")
        for number, files in chosen:
            began, before = time.perf_counter(), reading.text
            target = folder / f"{_prefix(number, count)}-{encoder.key(files)[:12]}"
            for old in folder.glob(f"{_prefix(number, count)}-*"):
                if old != target:  # of files that have changed
                    remove(old)
            (found,) = read_shards([target])
            parts = encoder.shard(files, target, found)
            yield f"shard {number} of {count}: " + _summary(
                files, parts, len(found), (reading.text - before) / (time.perf_counter() - began)
            )


def _summary(files: Sequence[Source], parts: Sequence[Part], n_found: int, speed: float) -> str:
    """What a shard has; `n_found` of its parts were there, the others were encoded with `speed`
    bytes/s."""
    if not files:
        return "no files, since there are fewer files than shards"
    documents, n_bytes = (sum(each.about[key] for each in parts) for key in ("documents", "bytes"))
    done = "prepared before" if n_found == len(parts) else f"{speed / 1e6:.1f} MB/s"
    return (
        f"{counted(len(files), 'file')}, {counted(documents, 'document')}, "
        f"{decimal(n_bytes)} of text ({done})"
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


def _prefix(number: int, count: int) -> str:
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
        "files": digest_of("\n".join(Path(each.name).name for each in corpus.sources)),
        "shard_of": assign(corpus.sources, count),
    }
    file = folder / MANIFEST
    if file.exists():
        try:
            found = read_json(file, MANIFEST_BYTES)
        except (OSError, ValueError):
            found = None
        if isinstance(found, dict) and _is_same(found, own):
            return found["shard_of"]
        if any(folder.glob("*-of-*")):
            raise UserError(
                f"to: {folder} has shards of other settings or files ({file}); give the same ones, "
                "or another folder"
            )
        remove(folder / "tokenizer")  # of a first attempt that failed
        remove(file)
    others = {MANIFEST, "tokenizer"}
    if folder.is_dir() and any(
        not each.name.startswith(".") and each.name not in others for each in folder.iterdir()
    ):
        raise UserError(f"to: {folder} has other files; give a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(file, json.dumps(own, indent=2) + "\n")
    except OSError as error:
        raise UserError(
            f"to: {folder} cannot be written ({error.strerror}); give another folder"
        ) from error
    return own["shard_of"]


def _is_same(found: dict[str, Any], own: dict[str, Any]) -> bool:
    """Whether two manifests are of the same files and settings."""
    shard_of = found.get("shard_of")
    is_whole = isinstance(shard_of, list) and len(shard_of) == len(own["shard_of"])
    return is_whole and {**found, "shard_of": None} == {**own, "shard_of": None}


def _shared_tokenizer(corpus: Documents, config: TokenizerConfig, folder: Path) -> Tokenizer:
    """The tokenizer of all shards. One process trains it while the others wait."""
    target = folder / "tokenizer"
    with filelock.FileLock(folder / ".lock"):
        with suppress(UserError):  # it is missing or damaged
            return Tokenizer.load(target)
        if config.name != "bpe":
            tokenizer = fixed_tokenizer(config.name).with_document_end()
        elif config.vocab_size is None:
            raise UserError("tokenizer.vocab_size: is null; give the number of tokens for bpe")
        else:
            tokenizer = train_bpe(cut(corpus.sample()), config.vocab_size - 1).with_document_end()
        with publish(target, "to") as temporary:
            tokenizer.save(temporary)
        return tokenizer
