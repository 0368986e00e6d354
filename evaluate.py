"""Open a run and measure a whole split: `python evaluate.py run=runs/latest`.

Every token is scored once, save the first of the split, which nothing comes before.
"""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

from dataclasses import replace

import numpy as np
import torch
from omegaconf import DictConfig

from configs.cli import run_script
from configs.schema import EvaluateConfig, build
from data import TalesConfig, open_corpus, prepare
from data.batches import windows
from observe.terminal import against_floor
from sample import open_model
from training.device import autocast, check_precision, choose_device
from training.evaluation import measure
from training.run import Run


def main(cfg: DictConfig) -> None:
    config = build(cfg, EvaluateConfig)
    device = choose_device(config.device, "device")
    check_precision(config.precision)
    run_config, tokenizer, model, _ = open_model(config.run, config.checkpoint, device)
    split = config.split or ("val" if config.data is None else "all")
    data = config.data or run_config.data
    if split == "all" and not isinstance(data, TalesConfig):
        data = replace(data, val_fraction=1.0)  # nothing to split: one stream of tokens
    needed = ("train",) if split == "train" else ("val",)
    dataset = prepare(open_corpus(data), tokenizer, config.cache_dir, 1, needed)
    if data is run_config.data:
        Run.open(config.run, "run").check_tokens(dataset.sha256, "run")
    tokens = {"train": dataset.train, "val": dataset.val}.get(split)
    if tokens is None:
        tokens = np.concatenate([dataset.train, dataset.val])
    measured = measure(
        model,
        windows(tokens, run_config.model.context_length, config.batch_size),
        torch.from_numpy(tokenizer.token_bytes),
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
