"""The registry of all corpora, and how settings become a dataset."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from data.corpus import SPLITS, Corpus
from data.documents import TextConfig
from data.prepared import is_prepared, open_prepared
from data.shakespeare import ShakespeareConfig, open_shakespeare
from data.sources import is_url, local_path
from data.tales import Tales, TalesConfig
from data.text import open_text
from data.tokenizer import Tokenizer, TokenizerConfig
from data.tokens import Dataset, check_length, prepare
from errors import UserError, check_choice, printable

MOST_BYTES = 10**9  # of tales that are generated without the user's own word
CorpusConfig = TalesConfig | TextConfig | ShakespeareConfig


class CorpusKind(NamedTuple):
    """The settings of a corpus, and what opens it."""

    config: type[CorpusConfig]
    open: Callable[[Any], Corpus]


# By data.name. A new corpus also needs configs/data/<name>.yaml.
CORPORA = {
    "tales": CorpusKind(TalesConfig, Tales),
    "text": CorpusKind(TextConfig, open_text),
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
    if not trusted:
        config = _check_stored(config)
    try:
        return CORPORA[config.name].open(config)
    except UserError as error:
        if trusted or not isinstance(config, TextConfig):
            raise
        if os.path.lexists(local_path(config.path or "-")):
            raise
        raise UserError(f"{error}; if the text was moved, add data=text data.path=NEW") from error


def load_dataset(
    config: CorpusConfig,
    tokenizer: TokenizerConfig | Tokenizer,
    cache_dir: str | Path,
    context_length: int,
    splits: tuple[str, ...] = SPLITS,
    trusted: bool = True,
    say: Callable[[str], object] = lambda _line: None,
) -> tuple[Corpus | None, Dataset]:
    """The tokens of the corpus that `config` describes, and the corpus itself, unless it is a
    folder that prepare.py made. See `data.tokens.prepare` and `open_corpus`.

    say: is called with what is read, and with what was found in it.
    """
    corpus = None
    if isinstance(config, TextConfig) and is_prepared(path := local_path(config.path or "-")):
        dataset = open_prepared(config, path, tokenizer, say)
        check_length(dataset, context_length, splits)
    else:
        corpus = open_corpus(config, trusted)
        if corpus.description:
            say(printable(corpus.description))
        dataset = prepare(corpus, tokenizer, cache_dir, context_length, splits)
    if dataset.report:
        say(dataset.report)
    return corpus, dataset


def _check_stored(config: CorpusConfig) -> CorpusConfig:
    """The settings of a run that is perhaps a stranger's, without what would be downloaded. Raises
    UserError for what only the user may ask for."""
    if isinstance(config, ShakespeareConfig):
        return replace(config, url=None)
    if isinstance(config, TalesConfig):
        if config.n_bytes > MOST_BYTES:
            raise UserError(
                f"data.n_bytes: the run asks for {config.n_bytes:,} bytes of tales; confirm with "
                f"data=tales data.n_bytes={config.n_bytes}"
            )
        return config
    if is_url(config.path or ""):
        raise UserError(
            f"data.path: the run names {config.path}, which is not on this machine; "
            "confirm with data=text data.path=..."
        )
    path = local_path(config.path or "-")
    if os.path.lexists(path) and not (path.is_file() or path.is_dir()):
        raise UserError(
            f"data.path: {path} of the run is neither a file nor a folder; "
            "give the text with data=text data.path=..."
        )
    if path.is_dir():  # it can be large, such as the whole disk
        print(f"note: reading the text that the run names: {printable(str(path))}", file=sys.stderr)
    return config
