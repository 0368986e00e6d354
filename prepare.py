"""Encode a large corpus into shards, on one machine or on many: `python prepare.py to=corpus/
data.path=...`. `train.py data=text data.path=corpus/` reads them."""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import sys
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError, check_folder, check_range, print, printable
from common.settings import Values, build
from configs.cli import run_script
from data.documents import TextConfig
from data.prepared import write_shards
from data.text import open_documents
from data.tokenizer import TokenizerConfig


@dataclass
class PrepareConfig:
    """The settings of prepare.py; configs/prepare.yaml explains them."""

    to: str
    shards: int
    shard: int | None
    data: TextConfig
    tokenizer: TokenizerConfig

    def __post_init__(self) -> None:
        check_folder("to", self.to)
        check_range("shards", self.shards, 1, 99_999)
        if self.shard is not None:
            check_range("shard", self.shard, 0, self.shards - 1)


def main(values: Values) -> None:
    """Write one shard, or all of them one after the other."""
    config = build(PrepareConfig, values)
    corpus = open_documents(config.data)
    if config.data.deduplicate:
        raise UserError("data.deduplicate: give it to train.py, which joins the shards")
    print(printable(corpus.description or ""), file=sys.stderr)
    numbers = range(config.shards) if config.shard is None else [config.shard]
    folder = Path(config.to).expanduser()
    for line in write_shards(corpus, config.tokenizer, folder, numbers, config.shards):
        print(line, flush=True)


if __name__ == "__main__":
    run_script("prepare", main, PrepareConfig)
