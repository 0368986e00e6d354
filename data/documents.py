"""Documents: texts of the user's own, each in the split that its beginning decides.

Which split a document belongs to depends on its own text alone, whatever the order and the number
of files.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from rich.filesize import decimal

from common.errors import UserError, check_range, counted, print, printable
from data.corpus import Corpus, CorpusConfig, Document, text_of
from data.imported import repaired
from data.progress import Reading
from data.readers import read_documents
from data.sources import Source, is_url, local_path

# The characters at the start of a document that decide to which split it belongs.
FIRST = 1 << 16
SAMPLE = 1 << 28  # characters of documents on which a tokenizer is trained
SMALL = 1 << 20  # bytes of a file that can share a shard
ALONE = 64  # as many small files have a shard each


@dataclass
class TextConfig(CorpusConfig):
    """Which text, and how much of it is held out: see configs/data/text.yaml."""

    path: str | None
    val_fraction: float
    separator: str | None = None
    field: str = "text"
    exclude: str | None = None
    deduplicate: bool = False

    def __post_init__(self) -> None:
        check_range("val_fraction", self.val_fraction, above=0, most=1)
        if self.separator == "":
            raise ValueError("separator: is empty; give a text, or null for one document a file")

    def undivided(self) -> TextConfig:
        return replace(self, val_fraction=1.0)

    def without_trust(self) -> TextConfig:
        if is_url(self.path or ""):
            raise UserError(
                f"data.path: the run names {self.path}, which is not on this machine; "
                "confirm with data=text data.path=..."
            )
        path = local_path(self.path or "-")
        if os.path.lexists(path) and not (path.is_file() or path.is_dir()):
            raise UserError(
                f"data.path: {path} of the run is neither a file nor a folder; "
                "give the text with data=text data.path=..."
            )
        if path.is_dir():  # it can be large, such as the whole disk
            name = printable(str(path))
            print(f"note: reading the text that the run names: {name}", file=sys.stderr)
        return self

    @property
    def divider(self) -> str | None:
        r"""The separator of documents, in which `\n`, `\r` and `\t` stand for characters that are
        hard to type."""
        if self.separator is None:
            return None
        return self.separator.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")

    @property
    def rules(self) -> str:
        """What decides which documents a file has, and to which split they belong."""
        return json.dumps([self.field, self.divider, self.val_fraction])


class Documents(Corpus):
    """The documents of some files. An end token separates them."""

    adds_eos = True

    def __init__(self, config: TextConfig, sources: Sequence[Source]) -> None:
        self.config, self.sources = config, sources
        self.deduplicate, self.val_fraction = config.deduplicate, config.val_fraction
        self.n_bytes = sum(source.size or 0 for source in sources)
        files = f"reading documents of {counted(len(sources), 'file')}, {decimal(self.n_bytes)}"
        self.description = files + note_on_json(source.name for source in sources)

    def fingerprint(self) -> str:
        """Changes when a file changes, or a setting that decides what a document is."""
        known = [self.config.rules, *(source.fingerprint for source in self.sources)]
        return f"documents:{hashlib.sha256(json.dumps(known).encode()).hexdigest()}"

    def shards(self) -> Sequence[Documents]:
        """A shard for each file; small ones can share one. Adding a file changes at most one shard,
        unless the number of small files reaches the next power of two."""
        is_small = [source.size is not None and source.size < SMALL for source in self.sources]
        n_small = sum(is_small)
        n_shared = 1 << (n_small // ALONE).bit_length()
        groups: defaultdict[tuple[bool, int], list[Source]] = defaultdict(list)
        for index, source in enumerate(self.sources):
            if is_shared := n_small > ALONE and is_small[index]:
                # By its own name: the folder may be moved.
                index = hash_of(Path(source.name).name) % n_shared
            groups[is_shared, index].append(source)
        return [Documents(self.config, group) for _, group in sorted(groups.items())]

    def documents(self, reading: Reading | None = None) -> Iterator[Document]:
        """Those of which the hash of the beginning is below `val_fraction` are for validation."""
        field, separator = self.config.field, self.config.divider
        limit = int(self.config.val_fraction * (1 << 64))
        for source in self.sources:
            for parts in read_documents(source, field, separator, reading):
                first = ""  # a server can send small parts
                while len(first) < FIRST and (part := next(parts, None)) is not None:
                    first += part
                split = "val" if hash_of(first[:FIRST]) < limit else "train"
                yield Document(split, chain([first], parts))

    def training_text(self) -> Iterator[str]:
        """The first training documents of each file: of all files together, about `SAMPLE`
        characters."""
        share = SAMPLE // len(self.sources)
        for source in self.sources:
            left = share
            for text in text_of(Documents(self.config, [source]), "train"):
                yield repaired(text)
                yield "\n"  # no word continues in the next document
                left -= len(text)
                if left < 0:
                    break


def hash_of(text: str) -> int:
    """64 bits of the BLAKE2b of a text."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def list_skipped(names: Sequence[str]) -> str:
    """Which files are skipped; at most ten are named. Empty if there are none."""
    if not names:
        return ""
    shown = [printable(name) for name in sorted(names)[:10]]
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    files = counted(len(names), "file")
    return f"skipped {files} (not UTF-8 text, or empty): {', '.join(shown)}{more}"


def note_on_json(names: Iterable[str]) -> str:
    """What to say if there are `.json` files, in which one would expect documents."""
    count = sum(name.lower().endswith(".json") for name in names)
    if not count:
        return ""
    return (
        f" (note: the content of {counted(count, '.json file')} is plain text here; for documents, "
        "write one JSON object a line to a .jsonl file)"
    )
