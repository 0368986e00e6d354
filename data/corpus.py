"""What a corpus is, and the registry of all corpora.

Promises: every corpus, generated or read, has the same interface, and gives the same text every
time. Knows nothing of tokens.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from data.documents import open_text
from data.prepared import Prepared, is_prepared
from data.shakespeare import ShakespeareConfig, open_shakespeare
from data.sources import is_url
from data.tales import Tales, TalesConfig
from data.text import TextConfig
from errors import UserError, check_choice, printable

MOST_BYTES = 10**9  # of tales that are generated without the user's own word
CorpusConfig = TalesConfig | TextConfig | ShakespeareConfig


@runtime_checkable
class Corpus(Protocol):
    """A text in two splits, "train" and "val"."""

    def fingerprint(self) -> str:
        """Identifies the text of both splits, if possible without generating it."""

    def pieces(self, split: str) -> Iterator[str]:
        """The text of `split` in pieces of moderate size."""

    def document_bits(self, split: str) -> Sequence[float] | None:
        """The information of each document of `split` in bits, where it is known."""

    @property
    def description(self) -> str | None:
        """Which files are read, if there are several."""


class CorpusKind(NamedTuple):
    """The settings of a corpus, and what opens it."""

    config: type[CorpusConfig]
    open: Callable[[Any], Corpus]


def _open_text(config: TextConfig) -> Corpus:
    """A text, documents, or a folder of prepared shards."""
    if config.field is not None and is_prepared(config.path or "-"):
        return Prepared(config, Path(os.path.expanduser(config.path or "")))  # noqa: PTH111
    return open_text(config)


# By data.name. A new corpus also needs configs/data/<name>.yaml.
CORPORA = {
    "tales": CorpusKind(TalesConfig, Tales),
    "text": CorpusKind(TextConfig, _open_text),
    "shakespeare": CorpusKind(ShakespeareConfig, open_shakespeare),
}


def check_corpus(config: CorpusConfig) -> None:
    """Raise ValueError unless `config` has the type that belongs to its name."""
    check_choice("data.name", config.name, CORPORA)
    if type(config) is not CORPORA[config.name].config:
        raise ValueError(
            f"data.name: cannot be {config.name!r} here; choose a corpus with data=..."
        )


def open_corpus(config: CorpusConfig, trusted: bool = True) -> Corpus:
    """The corpus that `config` describes. Raises UserError for text that cannot be used.

    If the settings are not `trusted`, since they come with a run and not from the user, nothing is
    downloaded, and only files and folders are read.
    """
    if not trusted and isinstance(config, ShakespeareConfig):
        config = replace(config, url=None)
    if not trusted and isinstance(config, TalesConfig) and config.n_bytes > MOST_BYTES:
        raise UserError(
            f"data.n_bytes: the run asks for {config.n_bytes:,} bytes of tales; confirm with "
            f"data=tales data.n_bytes={config.n_bytes}"
        )
    if not trusted and is_url(url := getattr(config, "path", None) or ""):
        raise UserError(
            f"data.path: the run names {url}, which is not on this machine; "
            "confirm with data=text data.path=..."
        )
    path = Path(os.path.expanduser(getattr(config, "path", None) or "-"))  # noqa: PTH111
    if not trusted and path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(
            f"data.path: {path} of the run is neither a file nor a folder; "
            "give the text with data=text data.path=..."
        )
    if not trusted and isinstance(config, TextConfig) and not path.is_file():
        # It can be large, such as the whole disk.
        print(f"note: reading the text that the run names: {printable(str(path))}", file=sys.stderr)
    try:
        return CORPORA[config.name].open(config)
    except UserError as error:
        if trusted or path.exists() or not isinstance(config, TextConfig):
            raise
        moved = "if the text was moved, add data=text data.path=NEW"
        raise UserError(f"{error}; {moved}") from error
