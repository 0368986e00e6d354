"""Encode a large corpus into shards, on one machine or on many: `python prepare.py to=corpus/
data.path=...`. `train.py data=text data.path=corpus/` reads them."""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from common.errors import UserError, print, printable
from configs.cli import run_script
from configs.schema import PrepareConfig, build
from configs.sweep import named_output
from data.prepared import write_shards
from data.text import open_documents


def main(cfg: DictConfig) -> None:
    if HydraConfig.get().mode != RunMode.MULTIRUN:
        return prepare(cfg)
    with named_output(HydraConfig.get()):
        return prepare(cfg)


def prepare(cfg: DictConfig) -> None:
    """Write one shard, or all of them one after the other."""
    config = build(cfg, PrepareConfig)
    corpus = open_documents(config.data)
    if config.data.deduplicate:
        raise UserError("data.deduplicate: give it to train.py, which joins the shards")
    print(printable(corpus.description or ""), file=sys.stderr)
    numbers = range(config.shards) if config.shard is None else [config.shard]
    folder = Path(config.to).expanduser()
    for line in write_shards(corpus, config.tokenizer, folder, numbers, config.shards):
        print(line, flush=True)


if __name__ == "__main__":
    run_script("prepare", main)
