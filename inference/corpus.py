"""The corpus of a run, as its stored settings describe it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from data.corpora import CORPORA
from data.corpus import CorpusConfig
from inference.opening import built
from training.run import Run
from training.stored import read_settings


@dataclass(frozen=True)
class _Settings:
    data: Annotated[CorpusConfig | None, CORPORA]


def corpus_of(run: Run) -> CorpusConfig | None:
    """The settings of the text that a run was trained on; None if the run was converted from
    another format, and has no corpus. Raises UserError if they are damaged."""
    file = run.newest_settings_file  # the text may have been moved since the start
    stored = read_settings(file)
    values = {"data": stored["data"]} if "data" in stored else {}
    return built(_Settings, values, file, run).data
