"""Open a run and measure its loss over a whole split: `python evaluate.py run=latest`.

Every token is scored exactly once, except the very first of any text but tales. A tale is
read from its beginning.

Prints one line with the loss in words or, with json=true, as JSON and nothing else: run, step,
split, loss (nats per token), bpb (bits per byte), floor_bpb (null if it is unknown), tokens, bytes.
Progress, notes and errors go to standard error. Exit status 0; 2 for a mistake in the settings.
"""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from common.console import SteadyConsole
from common.device import choose_device
from common.errors import UserError, check_choice, check_folder, check_range, print_note
from common.settings import Values, build
from data.batches import EvalBatches
from data.corpora import CORPORA, load_dataset
from data.corpus import CorpusConfig
from inference.opening import OpenRun, open_run
from launch.cli import run_script
from launch.quoting import overridden
from observe.terminal import against_floor
from training.config import check_tokens, n_tokens
from training.evaluation import measure
from training.precision import PRECISIONS, autocast, evaluation_dtype


@dataclass
class EvaluateConfig:
    """The settings of evaluate.py; configs/evaluate.yaml explains them."""

    run: str
    checkpoint: str
    split: str | None
    eval_tokens: str
    stride: int | None
    batch_size: int
    cache_dir: str
    device: str
    precision: str
    json: bool
    # Not in the YAML file, where it would override the chosen group.
    data: Annotated[CorpusConfig | None, CORPORA] = None

    def __post_init__(self) -> None:
        if self.split is not None:
            check_choice("split", self.split, ("train", "val", "all"))
        check_tokens("eval_tokens", self.eval_tokens)
        if self.stride is not None:
            check_range("stride", self.stride, 1, 10**9)
        check_range("batch_size", self.batch_size, 1, 10**6)
        check_folder("cache_dir", self.cache_dir)
        check_choice("precision", self.precision, PRECISIONS)


def main(values: Values) -> None:
    config = build(EvaluateConfig, values)
    device = choose_device(config.device, "device")
    opened = open_run(config.run, config.checkpoint, device)
    split = config.split or ("val" if config.data is None else "all")
    batches = choose_batches(config, opened, split)
    result = measure(
        opened.model,
        show_progress(batches),
        torch.from_numpy(opened.tokenizer.token_bytes),
        device,
        autocast(device, evaluation_dtype(device, config.precision)),
        batches.bits,
    )
    loss, bpb, floor = result.loss, result.bpb, result.floor_bpb
    if config.json:
        place = {"run": str(opened.run.path), "step": opened.step, "split": split}
        losses = {"loss": loss, "bpb": bpb, "floor_bpb": floor}
        print(json.dumps({**place, **losses, "tokens": result.tokens, "bytes": result.bytes}))
        return
    print(
        f"{split}: {loss:.4f} nats per token, {against_floor(bpb, floor)} "
        f"({result.tokens:,} tokens, {result.bytes:,} bytes)"
    )


def choose_batches(config: EvaluateConfig, opened: OpenRun, split: str) -> EvalBatches:
    """What is scored. Raises UserError for settings that contradict each other."""
    own = opened.corpus()
    data = choose_data(config.data, own, split)
    if split == "all" and config.data is not None:
        whole = data.undivided()
        for name in vars(data):
            if getattr(whole, name) != getattr(data, name) and f"data.{name}" in overridden():
                raise UserError(
                    f"data.{name}: has no effect on split=all; leave it out, or give split=val"
                )
        data = whole
    needed = ("train",) if split == "train" else ("val",)
    trusted = config.data is not None
    _, dataset = load_dataset(
        data, opened.tokenizer, config.cache_dir, 1, needed, trusted=trusted, say=print_note
    )
    if data is own:
        opened.run.check_tokens(dataset.sha256, "run")
    tokens, starts = dataset.val, dataset.val_starts
    if split == "train":
        tokens, starts = dataset.train, dataset.train_starts
    elif split == "all" and len(dataset.train):
        if starts is not None and dataset.train_starts is not None:
            starts = np.concatenate([dataset.train_starts, len(dataset.train) + starts])
        tokens = np.concatenate([dataset.train, tokens])
    length = opened.config.model.context_length
    if config.stride is not None and config.stride > length:
        raise UserError(f"stride: {config.stride} is more than the context length of {length}")
    bits = dataset.val_bits if tokens is dataset.val else None
    batches = EvalBatches(tokens, length, config.batch_size, starts, config.stride, bits)
    return batches.part(n_tokens(config.eval_tokens))


def choose_data(given: Any, own: Any, split: str) -> Any:
    """The settings of the text to score: those `given`, or the run's `own`. A text that has moved
    keeps the others of the run, whose splits depend on them. Raises UserError if there are none."""
    data = given or own
    if data is None:
        raise UserError(
            "data: this run was converted and has no corpus; give one, such as data=text "
            "data.path=notes.txt"
        )
    names = overridden()
    if "data.path" not in names or split == "all" or own is None or data.name != own.name:
        return data
    new = [field.name for field in fields(data) if f"data.{field.name}" in names]
    return replace(own, **{name: getattr(data, name) for name in new})


def show_progress(batches: EvalBatches) -> Iterable[tuple[Tensor, Tensor]]:
    """The batches, with a progress bar while they are read; one line instead if standard error is
    no terminal."""
    console = SteadyConsole(stderr=True)
    if not console.is_terminal:
        print_note(f"evaluating {batches.n_targets:,} tokens")
    return track(
        batches, "Evaluating", console=console, transient=True, disable=not console.is_terminal
    )


if __name__ == "__main__":
    run_script("evaluate", main, EvaluateConfig)
