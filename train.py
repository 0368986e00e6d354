"""Train a GPT: compose the settings, build the parts, fit. `--help` lists the settings."""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

from training.signals import Signals, Stopped, stop_at_once

if __name__ == "__main__":
    stop_at_once(importing=True)  # the imports below take a second or two

import math
import re
import shlex
import sys
from pathlib import Path

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from configs.cli import run_script
from configs.schema import TrainConfig, build, flat, load_run_config, with_overrides
from data import Dataset, Tokenizer, open_corpus, prepare
from data.batches import Batches, windows
from errors import UserError
from model import GPT
from observers import build_observers
from training.checkpoint import Progress, load_optimizer, load_progress, load_weights
from training.device import check_memory, choose_device, keep_freed_memory
from training.observer import Observer
from training.optimizer import Optimizer, lr_scale
from training.ranks import Ranks, join_ranks
from training.run import Run, check_new, check_runs
from training.trainer import Diverged, Trainer

# What makes the model: a resumed run cannot change it. A text may have moved: its contents are
# compared.
FIXED = ("seed", "data.", "tokenizer.", "model.", "optimizer.name")
MAY_MOVE = ("data.path", "data.url", "data.cache_dir")


def main(cfg: DictConfig) -> float | None:
    """Fit one run; returns its validation bits per byte, for sweepers that minimise it.

    In a sweep, a run that diverges is told and counts as infinitely bad: the others go on.
    """
    try:
        return train(cfg)
    except Diverged as error:
        if HydraConfig.get().mode != RunMode.MULTIRUN:
            raise
        print(f"error: {error}", file=sys.stderr)
        return math.inf


def train(cfg: DictConfig) -> float | None:
    """Open the settings and the device, and fit with the other ranks."""
    run, settings = _open_settings(cfg)
    config = build(settings, TrainConfig)
    device = choose_device(config.trainer.device)
    keep_freed_memory()
    _check_memory(config, device)
    with join_ranks(device) as ranks:
        try:
            return fit(config, settings, run, device, ranks)
        except RuntimeError as error:
            if ranks.is_first or not re.search("closed by peer|reset by peer", str(error)):
                raise
            print(f"rank {ranks.rank}: another rank has gone", file=sys.stderr)
            sys.exit(2)


def fit(
    config: TrainConfig, settings: DictConfig, run: Run | None, device: torch.device, ranks: Ranks
) -> float | None:
    """Build the parts on every rank and train; the first rank alone writes to the run."""
    _check_ranks(config, ranks)
    with ranks.first_alone():
        corpus = open_corpus(config.data)
        dataset = prepare(
            corpus,
            Tokenizer.load(run.tokenizer_folder) if run else config.tokenizer,
            config.cache_dir,
            config.model.context_length,
        )
    torch.manual_seed(config.seed)
    model = GPT(config.model, dataset.tokenizer.vocab_size)
    progress, checkpoint = Progress(), None
    if run:
        progress, checkpoint = _restore(run, config, model, dataset, ranks)
        if progress.step >= config.trainer.max_steps and run.is_summed_up(progress.step):
            if ranks.is_first:
                print(
                    f"{run.path} has its {progress.step} steps: nothing to do. "
                    f"For more, raise trainer.max_steps above {progress.step}."
                )
            return None
    elif ranks.is_first:
        run = _create(config, settings, dataset)
    path = ranks.tell(str(run.path) if run else "")
    run = run or Run.open(path, "run_dir")
    run.checkpoints.keep, run.checkpoints.writes = config.trainer.keep_checkpoints, ranks.is_first
    forward = ranks.wrap(model, config.trainer.parallel, device)
    optimizer = Optimizer(model, config.optimizer)
    if checkpoint:
        load_optimizer(optimizer, checkpoint)
    observers: list[Observer] = []
    if ranks.is_first:
        run.point_latest()
        run.start_log()
        run.store_settings(OmegaConf.to_yaml(settings, resolve=True))
        is_whole = ranks.count == 1 or config.trainer.parallel == "ddp"
        observers = build_observers(
            config, settings, run, model, corpus, dataset, progress, device, is_whole
        )
    batch_size, length = config.trainer.batch_size, config.model.context_length
    with Signals() as signals:
        trainer = Trainer(
            config.trainer,
            model,
            optimizer,
            seed=config.seed,
            device=device,
            batch=Batches(dataset.train, batch_size, length, config.seed),
            validation=lambda: windows(dataset.val, length, batch_size),
            token_bytes=torch.from_numpy(dataset.tokenizer.token_bytes),
            floor_bpb=dataset.floor_bpb,
            lr_scale=lambda step: lr_scale(step, config.trainer.max_steps, config.optimizer),
            checkpoints=run.checkpoints,
            observers=observers,
            progress=progress,
            signals=signals,
            ranks=ranks,
            forward=forward,
        )
        try:
            summary = trainer.fit()
        except Stopped as stopped:
            if ranks.is_first:
                command = shlex.join(["python", "train.py", f"resume={run.path}"])
                print(f"{stopped}. To go on: {command}", file=sys.stderr)
            sys.exit(stopped.status)
        except Diverged:
            if ranks.is_first:
                raise
            sys.exit(2)  # the first rank tells it
    if ranks.is_first:
        run.write_summary(summary)
    return summary.val_bpb


def _check_ranks(config: TrainConfig, ranks: Ranks) -> None:
    share = ranks.count * config.trainer.grad_accumulation
    if config.trainer.batch_size % share:
        raise UserError(
            f"trainer.batch_size: {config.trainer.batch_size} cannot be shared by {ranks.count} "
            f"ranks in {config.trainer.grad_accumulation} parts; give a multiple of {share}"
        )
    if config.observe.histograms.every and ranks.count > 1 and config.trainer.parallel == "fsdp":
        raise UserError(
            "observe.histograms.every: there are no histograms with trainer.parallel=fsdp, which "
            "cuts the model; give 0, or choose trainer.parallel=ddp"
        )


def _restore(
    run: Run, config: TrainConfig, model: GPT, dataset: Dataset, ranks: Ranks
) -> tuple[Progress, Path | None]:
    """Lock the run, and fill the model from its last good checkpoint: how far it has come, and the
    checkpoint. A run that was stopped before its first one begins anew."""
    run.check_tokens(dataset.sha256, "resume")
    found, refusal = "", None
    if ranks.is_first:
        try:
            run.lock("resume")
        except OSError as error:
            refusal = error  # read-only, which matters only if there is something left to do
        if run.checkpoints:
            found = str(run.checkpoints.find("last", "resume"))
    found = ranks.tell(found)
    progress = load_progress(Path(found)) if found else Progress()
    if refusal and progress.step < config.trainer.max_steps:
        raise refusal
    if not found:
        return progress, None
    load_weights(model, Path(found))
    return progress, Path(found)


def _open_settings(cfg: DictConfig) -> tuple[Run | None, DictConfig]:
    """The settings as given, or those of the run to resume with today's overrides on top."""
    if isinstance(cfg.data.get("path"), str) and cfg.data.path not in ("", "-"):
        # Whoever opens the run later may stand in another folder.
        cfg.data.path = str(Path(cfg.data.path).expanduser().absolute())
    check_runs()
    if cfg.resume is None:
        build(cfg, TrainConfig)  # a mistake is told before anything is opened
        check_new(cfg.run_dir)
        return None, cfg
    run = Run.open(cfg.resume, "resume")
    if cfg.run_dir is not None:
        raise UserError("run_dir: a resumed run stays in its folder; leave run_dir out")
    stored = load_run_config(run.config_file)
    overridden = [each.lstrip("+~").partition("=")[0] for each in HydraConfig.get().overrides.task]
    if "experiment" in overridden:
        raise UserError("experiment: a resumed run keeps its settings; leave experiment out")
    # Earlier resumes may have changed what this one starts from.
    before = load_run_config(run.resumed_file) if run.resumed_file.exists() else stored
    settings = with_overrides(before, cfg, [key for key in overridden if key != "resume"])
    was, now = (flat(OmegaConf.to_container(each)) for each in (stored, settings))
    changed = [name for name in was | now if was.get(name) != now.get(name)]
    refused = [name for name in changed if name.startswith(FIXED) and name not in MAY_MOVE]
    if refused:
        raise UserError(
            f"resume: {', '.join(refused)} cannot change in a resumed run; "
            "leave it out, or start a new run"
        )
    return run, settings


def _check_memory(config: TrainConfig, device: torch.device) -> None:
    """At the least: weights, gradients, one optimizer moment, and the logits of one part.

    Before the text is read, which may take long: so the vocabulary is no more than a guess. Keys
    and values are left out, which may be few.
    """
    vocab_size = config.tokenizer.vocab_size or 256
    model = config.model
    widths = 2 * model.n_heads * model.head_width + 2 * model.mlp_width
    n_parameters = model.d_model * (vocab_size + model.n_layers * widths)
    sequences = config.trainer.batch_size // config.trainer.grad_accumulation
    logits = sequences * config.model.context_length * vocab_size
    check_memory(4 * (3 * n_parameters + logits), device)


def _create(config: TrainConfig, settings: DictConfig, dataset: Dataset) -> Run:
    hydra = HydraConfig.get()
    path = config.run_dir
    if hydra.mode == RunMode.MULTIRUN:
        if path is not None:
            raise UserError("run_dir: with -m every run has its own; give hydra.sweep.dir instead")
        path = hydra.runtime.output_dir
    return Run.create(
        path,
        OmegaConf.to_yaml(settings, resolve=True),
        {
            "config.yaml": OmegaConf.to_yaml(settings),
            "overrides.yaml": OmegaConf.to_yaml(hydra.overrides.task),
            "hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra})),
        },
        dataset.sha256,
        dataset.tokenizer.save,
    )


if __name__ == "__main__":
    stop_at_once()
    run_script("train", main)
