"""The corpus of a run, as its stored settings describe it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from common.errors import UserError
from data.corpora import CORPORA, load_dataset
from data.corpus import Corpus, CorpusConfig
from data.encoding import Dataset
from data.floor import Floor, floor_of, no_floor
from data.tales import TalesConfig
from data.tokenizer import Tokenizer
from store.run import Run


@dataclass(frozen=True)
class _Settings:
    data: Annotated[CorpusConfig | None, CORPORA]


def corpus_of(run: Run) -> CorpusConfig | None:
    """The settings of the text that a run was trained on; None if the run was converted from
    another format, and has no corpus. Raises UserError if they are damaged."""
    return run.config(_Settings).data


def text_of(run: Run, tokenizer: Tokenizer, cache_dir: str | Path) -> tuple[Corpus, Dataset]:
    """See `OpenRun.text`."""
    config = corpus_of(run)
    if config is None:
        raise UserError(f"run: {run.path} has no text of its own")
    corpus, dataset = load_dataset(config, tokenizer, cache_dir, 1, ("val",), trusted=False)
    run.check_tokens(dataset.sha256, "run")
    return corpus, dataset


def floor_in(run: Run, tokenizer: Tokenizer, tokens: Sequence[int]) -> Floor:
    """See `OpenRun.floor`."""
    try:
        if isinstance(corpus_of(run), TalesConfig):
            return floor_of(tokens, tokenizer)
    except UserError as error:
        return no_floor(len(tokens), str(error))
    why = f"run: {run.path} was not trained on tales, whose grammar says what can be known"
    return no_floor(len(tokens), why)
