"""The corpus of a run, as its stored settings describe it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from data.corpora import CORPORA
from data.corpus import CorpusConfig
from store.run import Run


@dataclass(frozen=True)
class _Settings:
    data: Annotated[CorpusConfig | None, CORPORA]


def corpus_of(run: Run) -> CorpusConfig | None:
    """The settings of the text that a run was trained on; None if the run was converted from
    another format, and has no corpus. Raises UserError if they are damaged."""
    return run.config(_Settings).data
