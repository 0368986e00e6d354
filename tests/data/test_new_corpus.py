"""A corpus that is one more entry in CORPORA trains, and is scored in every split."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore

from data.corpora import CORPORA, CorpusKind
from data.corpus import Corpus, CorpusConfig, Document
from tests.conftest import PLAIN, succeed


@dataclass
class CountingConfig(CorpusConfig):
    name: str = "counting"
    n_documents: int = 300


class Counting(Corpus):
    """Documents of a number each, every tenth for validation."""

    adds_eos = True

    def __init__(self, config: CountingConfig) -> None:
        self.n_documents = config.n_documents

    def fingerprint(self) -> str:
        return f"counting:{self.n_documents}"

    def documents(self) -> Iterator[Document]:
        for number in range(self.n_documents):
            yield Document("train" if number % 10 else "val", [f"this is number {number}"])


def test_a_new_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CORPORA, "counting", CorpusKind(CountingConfig, Counting))
    ConfigStore.instance().store(group="data", name="counting", node=CountingConfig)
    settings = [each for each in PLAIN if not each.startswith("data.")]
    succeed("train", *settings, "data=counting", "run_dir=run", cwd=tmp_path)
    documents = [*Counting(CountingConfig()).documents()]
    for split in ("train", "val", "all"):
        texts = ["".join(each.parts) for each in documents if split in (each.split, "all")]
        printed = succeed("evaluate", "run=run", f"split={split}", cwd=tmp_path)
        (scored,) = re.findall(r"([\d,]+) bytes\)$", printed)
        # The first token is not scored.
        assert 0 <= len("".join(texts)) - int(scored.replace(",", "")) < 20
