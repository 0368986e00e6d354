"""Open a run and measure its loss over a whole split: `python evaluate.py run=runs/latest`.

Every token except the first of the split is scored exactly once.
"""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

from training.signals import stop_at_once

if __name__ == "__main__":
    stop_at_once()  # the imports below take a second or two

from dataclasses import replace

import numpy as np
import torch
from omegaconf import DictConfig

from configs.cli import run_script
from configs.schema import EvaluateConfig, build
from data import TalesConfig, open_corpus, prepare
from data.batches import windows
from inference import open_run
from observe.terminal import against_floor
from training.device import autocast, choose_device
from training.evaluation import measure


def main(cfg: DictConfig) -> None:
    config = build(cfg, EvaluateConfig)
    device = choose_device(config.device, "device")
    opened = open_run(config.run, config.checkpoint, device)
    split = config.split or ("val" if config.data is None else "all")
    data = config.data or opened.config.data
    if split == "all" and not isinstance(data, TalesConfig):
        data = replace(data, val_fraction=1.0)  # one stream of tokens
    needed = ("train",) if split == "train" else ("val",)
    dataset = prepare(open_corpus(data), opened.tokenizer, config.cache_dir, 1, needed)
    if data is opened.config.data:
        opened.run.check_tokens(dataset.sha256, "run")
    tokens = {"train": dataset.train, "val": dataset.val}.get(split)
    if tokens is None:
        tokens = np.concatenate([dataset.train, dataset.val])
    measured = measure(
        opened.model,
        windows(tokens, opened.config.model.context_length, config.batch_size),
        torch.from_numpy(opened.tokenizer.token_bytes),
        device,
        autocast(device, config.precision),
    )
    floor = dataset.floor_bpb if split == "val" else None
    print(
        f"{split}: {measured.loss:.4f} nats per token, {against_floor(measured.bpb, floor)} "
        f"({measured.tokens:,} tokens, {measured.bytes:,} bytes)"
    )


if __name__ == "__main__":
    run_script("evaluate", main)
