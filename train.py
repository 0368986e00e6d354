"""Train a GPT: compose the settings, build the parts, fit. `--help` lists the settings."""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import logging
import math
import sys

import torch

from common.errors import print
from common.settings import Values
from configs.cli import overridden, run_script
from configs.schema import TrainConfig
from configs.settings import Settings, is_in_sweep, open_settings
from configs.start import create_or_resume, load_data, record_start
from inference import Writer, new_model
from live.page import is_possible
from observe.build import build_observers
from observe.context import RunContext
from observe.wandb import check_installed
from training.checkpointing import Checkpointing
from training.config import check_training_memory
from training.data import training_data
from training.device import check_compiler, choose_device, keep_freed_memory
from training.distributed import join_ranks, leaving_ranks
from training.evaluation import Evaluation
from training.guard import Diverged, NonFiniteGuard
from training.metrics import Metrics
from training.optimizer import Optimizer
from training.signals import StopOnSignal, exit_stopped
from training.trainer import Trainer
from training.weights import load_optimizer, load_weights

log = logging.getLogger("training")


def main(values: Values) -> float | None:
    """Train one run; returns its validation bits per byte, which sweepers minimise.

    In a sweep, a run that diverges is reported and counts as infinitely bad; the others continue.
    """
    try:
        return train(open_settings(values))
    except Diverged as error:
        if not is_in_sweep():
            raise
        print(f"error: {error}", file=sys.stderr)
        return math.inf


def train(settings: Settings) -> float | None:
    """Train on every rank, from settings to summary; the main process alone writes to the run."""
    config = settings.config
    if config.observe.wandb:
        check_installed()
    keep_freed_memory()
    with join_ranks(choose_device(config.trainer.device)) as ranks:
        config.trainer.check_ranks(ranks.world_size)
        if config.trainer.compile:
            check_compiler(ranks.device)
        pretrained = ranks.broadcast(settings.find_pretrained_weights() if ranks.is_main else None)
        model = settings.load_pretrained(pretrained)
        check_training_memory(config.model, config.trainer, config.tokenizer.vocab_size, ranks)
        corpus, dataset = load_data(settings, ranks)
        torch.manual_seed(config.seed)
        model = model or new_model(config.model, dataset.tokenizer)
        start = create_or_resume(settings, dataset, ranks)
        if start is None:
            assert settings.resumed
            return settings.resumed.val_bpb
        run, state, checkpoint = start
        data = training_data(dataset, config)
        if checkpoint:
            load_weights(model, checkpoint)
        if config.trainer.activation_checkpointing:
            model.checkpoint_activations()
        model.to(ranks.device)
        optimizer = Optimizer(model, config.optimizer, config.trainer.max_steps)
        if checkpoint:
            load_optimizer(optimizer, checkpoint)
        if ranks.is_main:
            record_start(settings, start, dataset, pretrained)
        writer = Writer(model, dataset.tokenizer, config.data.document_end)
        context = RunContext(
            folder=run.path,
            config=config,
            varied=frozenset(overridden()),
            model=model,
            corpus=corpus,
            dataset=dataset,
            write_sample=lambda: writer.write(config.observe.samples),
            first_step=state.step,
            has_page=is_possible(model, dataset.tokenizer),
            gives_hints=not is_in_sweep(),
            is_in_sweep=is_in_sweep(),
        )
        is_finetuned = config.init_from is not None
        # A new run saves the weights of another, which may be deleted or trained on.
        saves_start = is_finetuned and state.step == 0
        # The order matters: the guard counts the skipped steps before others read the state,
        # and a step is saved before it is evaluated.
        callbacks = [
            StopOnSignal(),
            NonFiniteGuard(),
            Metrics(data.token_bytes),
            *(build_observers(config.observe, context) if ranks.is_main else []),
            Checkpointing(run.checkpoints, saves_start, run.check_in_place),
            Evaluation(data.validation, data.final_validation, data.token_bytes, is_finetuned),
        ]
        trainer = Trainer(
            config.trainer,
            ranks.wrap(model),
            optimizer,
            data.batches,
            state,
            config.seed,
            ranks,
            callbacks,
        )
        with run.in_place():
            summary = trainer.fit()
            if summary and ranks.is_main:
                run.write_summary(summary)
        log.info("looking at the model took %s", context.stopwatch)
    if summary is None:
        exit_stopped(trainer, run.path)
    return summary.val_bpb


if __name__ == "__main__":
    with leaving_ranks():
        run_script("train", main, TrainConfig)
