"""The registry of all corpora, and how settings become a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import UserError
from data.corpus import SPLITS, Corpus, CorpusConfig
from data.dataset import DatasetConfig, Streamed
from data.encoding import Dataset
from data.files import local_path
from data.shakespeare import ShakespeareConfig, open_shakespeare
from data.tales import Tales, TalesConfig
from data.text import TextConfig, open_text
from data.tokenizer import Tokenizer, TokenizerConfig
from data.tokens import ending_ids, prepare, start_ids


class CorpusKind(NamedTuple):
    """The settings of a corpus, and what opens it."""

    config: type[CorpusConfig]
    open: Callable[[Any], Corpus]


# By data.name. A new corpus also needs configs/data/<name>.yaml.
CORPORA = {
    "tales": CorpusKind(TalesConfig, Tales),
    "text": CorpusKind(TextConfig, open_text),
    "dataset": CorpusKind(DatasetConfig, Streamed),
    "shakespeare": CorpusKind(ShakespeareConfig, open_shakespeare),
}


def open_corpus(config: CorpusConfig, trusted: bool = True) -> Corpus:
    """The corpus that `config` describes. Raises UserError for text that cannot be used.

    If the settings are not `trusted`, since they come with a run and not from the user, nothing is
    downloaded, and only files and folders are read.
    """
    try:
        config = config if trusted else config.without_trust()
        return CORPORA[config.name].open(config)
    except UserError as error:
        path = getattr(config, "path", None)
        if trusted or path is None or os.path.lexists(local_path(path)):
            raise
        moved = f"train.py and evaluate.py take data={config.name} data.path=NEW"
        raise UserError(f"{error}; if the text was moved, {moved}") from error


def load_dataset(
    config: CorpusConfig,
    tokenizer: TokenizerConfig | Tokenizer,
    cache_dir: str | Path,
    context_length: int,
    splits: tuple[str, ...] = SPLITS,
    trusted: bool = True,
    say: Callable[[str], object] = lambda _line: None,
) -> tuple[Corpus, Dataset]:
    """The corpus that `config` describes, and its tokens. See `data.tokens.prepare` and
    `open_corpus`. The tokenizer of the tokens knows what a model that is trained on them can begin
    with, and what ends a document.

    say: is called with what is read, with what was found in it, and before what can take long.
    """
    corpus = open_corpus(config, trusted)
    if corpus.description:
        say(corpus.description)
    dataset = prepare(corpus, tokenizer, cache_dir, context_length, splits, say)
    if dataset.report:
        say(dataset.report)
    if len(dataset.train):
        found = dataset.tokenizer
        end, starts = corpus.document_end, dataset.train_starts
        if end is not None and starts is not None:
            start = ending_ids(dataset.train, starts, found, end)
        elif corpus.adds_eos:
            start = tuple(found.separator_ids)
        else:
            start = start_ids(dataset.train, found)
        dataset = replace(dataset, tokenizer=found.of_text(start, end))
    return corpus, dataset
