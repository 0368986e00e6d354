"""Train a GPT: compose the settings, build the parts, fit. `--help` lists the settings.

Prints progress, evaluations and the result to standard output; the run itself is a folder under
runs/. Exit status 0; 2 for a mistake in the settings, a run that diverged, or output that cannot be
written; 143, 130 or 129 if SIGTERM, Ctrl-C or SIGHUP stopped it, after which `resume=` continues.
"""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import logging
import math
import sys
from pathlib import Path

import torch

from common.device import choose_device, keep_freed_memory
from common.errors import print
from common.settings import Values
from data.corpus import Corpus
from data.tokens import Dataset
from inference.writer import Writer
from launch.cli import run_script
from launch.quoting import overridden
from launch.schema import TrainConfig
from launch.settings import is_in_sweep, open_settings
from launch.start import (
    check_machine,
    claimed,
    find_start,
    finished_result,
    is_finished,
    load_data,
    start_run,
)
from live.page import is_possible
from model import GPT
from observe.build import build_observers
from observe.context import RunContext
from store.checkpoint import TrainState
from store.run import Run
from store.weights import load_model
from training.checkpointing import Checkpointing
from training.config import training_data
from training.device_check import check_device
from training.distributed import join_ranks, leaving_ranks
from training.evaluation import Evaluation, Metrics
from training.guard import Diverged, NonFiniteGuard
from training.optimizer import Optimizer, load_optimizer
from training.precision import training_precision
from training.signals import StopOnSignal, exit_stopped
from training.trainer import Trainer

log = logging.getLogger("training")


def main(values: Values) -> float | None:
    """Train one run; returns its validation bits per byte, the objective of sweepers.

    In a sweep, a run that diverges is reported and counts as infinitely bad; the others continue.
    """
    try:
        return train(values)
    except Diverged as error:
        if not is_in_sweep():
            raise
        print(f"error: {error}", file=sys.stderr)
        return math.inf


def train(values: Values) -> float | None:
    """Train on every rank, from settings to summary; the main process alone writes to the run."""
    first = open_settings(values)
    keep_freed_memory()
    with join_ranks(choose_device(first.config.trainer.device)) as ranks:
        check_machine(first.config, ranks)
        with claimed(first, lambda: open_settings(values), ranks) as settings:
            config = settings.config
            start = find_start(settings, ranks)  # from here on, a run to resume is locked
            if settings.resumed and is_finished(settings, start):
                return finished_result(settings.resumed, settings, start, ranks)
            corpus, dataset = load_data(settings, ranks)
            model = build_model(config, dataset, start.weights).to(ranks.device)
            asked = config.trainer.precision
            precision = training_precision(asked, model, start.state, config.cache_dir, ranks)
            check_device(ranks.device, precision, config.cache_dir)
            optimizer = Optimizer(model, config.optimizer, config.trainer.max_steps, precision.fast)
            if start.weights and start.resumes:
                load_optimizer(optimizer, start.weights)
            run = start_run(settings, dataset, start, ranks)  # and a new one from here on
        splits = training_data(dataset, config)
        state = start.state
        context = run_context(config, run, model, corpus, dataset, state)
        is_finetuned = config.init_from is not None
        with run.in_place():
            # The order matters: the guard counts the skipped steps before others read the state,
            # and a step is saved before it is evaluated.
            callbacks = [
                StopOnSignal(),
                NonFiniteGuard(),
                Metrics(splits.token_bytes),
                *(build_observers(config.observe, context) if ranks.is_main else []),
                Checkpointing(run.checkpoints, is_finetuned),
                Evaluation(
                    splits.validation, splits.final_validation, splits.token_bytes, is_finetuned
                ),
            ]
            trainer = Trainer(
                config.trainer,
                ranks.wrap(model),
                optimizer,
                splits.batches,
                state,
                config.seed,
                ranks,
                callbacks,
                precision=precision,
                check=run.check_in_place,
            )
            summary = trainer.fit()
            if summary and ranks.is_main:
                run.write_summary(summary)
                trainer.call("on_result")
    if summary is None:
        exit_stopped(trainer, run.path)
    return summary.val_bpb


def build_model(config: TrainConfig, dataset: Dataset, checkpoint: Path | None) -> GPT:
    """The model with the weights of a checkpoint, or without one a new model."""
    torch.manual_seed(config.seed)
    vocab_size = dataset.tokenizer.vocab_size
    if checkpoint:
        model = load_model(config.model, vocab_size, checkpoint)
    else:
        model = GPT(config.model, vocab_size)
    if config.trainer.activation_checkpointing:
        model.checkpoint_activations()
    return model


def run_context(
    config: TrainConfig,
    run: Run,
    model: GPT,
    corpus: Corpus | None,
    dataset: Dataset,
    state: TrainState,
) -> RunContext:
    """What observers read of the run."""
    writer = Writer(model, dataset.tokenizer)
    return RunContext(
        folder=run.path,
        config=config,
        varied=frozenset(overridden()),
        model=model,
        corpus=corpus,
        dataset=dataset,
        write_sample=lambda: writer.write(config.observe.samples),
        first_step=state.step,
        has_page=is_possible(model, dataset.tokenizer),
        is_in_sweep=is_in_sweep(),
    )


if __name__ == "__main__":
    with leaving_ranks():
        run_script("train", main, TrainConfig)
