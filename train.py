"""Train a GPT: compose the settings, build the parts, fit. `--help` lists the settings."""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

import shlex
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from configs.cli import run_script
from configs.schema import TrainConfig, build, load_run_config, with_overrides
from data import Dataset, Tokenizer, open_corpus, prepare
from data.batches import Batches, windows
from errors import UserError
from model import GPT
from observe.metrics_file import MetricsFile
from sample import Writer
from training.checkpoint import Progress, load_optimizer, load_progress, load_weights
from training.device import check_memory, choose_device, keep_freed_memory
from training.observer import Observer
from training.optimizer import Optimizer, lr_scale
from training.ranks import Ranks, join_ranks
from training.run import Run, check_new, check_runs
from training.signals import Signals, Stopped
from training.trainer import Trainer

# What makes the model: a resumed run cannot change it.
FIXED = ("seed", "data", "tokenizer", "model", "optimizer.name")


def main(cfg: DictConfig) -> float | None:
    """Fit one run; returns its validation bits per byte, for sweepers that minimise it."""
    run, settings = _open_settings(cfg)
    config = build(settings, TrainConfig)
    device = choose_device(config.trainer.device)
    keep_freed_memory()
    _check_memory(config, device)
    with join_ranks(device) as ranks:
        return fit(config, settings, run, device, ranks)


def fit(
    config: TrainConfig, settings: DictConfig, run: Run | None, device: torch.device, ranks: Ranks
) -> float | None:
    """Build the parts on every rank and train; the first rank alone writes to the run."""
    _check_share(config, ranks)
    with ranks.first_alone():
        dataset = prepare(
            open_corpus(config.data),
            Tokenizer.load(run.tokenizer_folder) if run else config.tokenizer,
            config.cache_dir,
            config.model.context_length,
        )
    torch.manual_seed(config.seed)
    model = GPT(config.model, dataset.tokenizer.vocab_size)
    progress, checkpoint = Progress(), None
    if run:
        progress, checkpoint = _restore(run, model, dataset, ranks)
        if progress.step >= config.trainer.max_steps:
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
        is_whole = ranks.count == 1 or config.trainer.parallel == "ddp"
        observers = _observers(config, settings, run, model, dataset, progress, device, is_whole)
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
                print(f"{stopped}. To go on: {_resume_command(run)}", file=sys.stderr)
            sys.exit(stopped.status)
    if ranks.is_first:
        run.write_summary(summary)
    return summary.val_bpb


def _resume_command(run: Run) -> str:
    """What to type to go on: a resumed run needs today's overrides again, a new one has them."""
    overrides = HydraConfig.get().overrides.task
    again = [each for each in overrides if not each.startswith("resume=")]
    if len(again) == len(overrides):
        again = []
    return shlex.join(["python", "train.py", f"resume={run.path}", *again])


def _check_share(config: TrainConfig, ranks: Ranks) -> None:
    share = ranks.count * config.trainer.grad_accumulation
    if config.trainer.batch_size % share:
        raise UserError(
            f"trainer.batch_size: {config.trainer.batch_size} cannot be shared by {ranks.count} "
            f"ranks in {config.trainer.grad_accumulation} parts; give a multiple of {share}"
        )


def _restore(run: Run, model: GPT, dataset: Dataset, ranks: Ranks) -> tuple[Progress, Path | None]:
    """Lock the run, and fill the model from its last good checkpoint: how far it has come, and the
    checkpoint. A run that was stopped before its first one begins anew."""
    run.check_tokens(dataset.sha256, "resume")
    if ranks.is_first:
        run.lock("resume")
    if not run.checkpoints:
        return Progress(), None
    checkpoint = run.checkpoints.find("last", "resume")
    load_weights(model, checkpoint)
    return load_progress(checkpoint), checkpoint


def _open_settings(cfg: DictConfig) -> tuple[Run | None, DictConfig]:
    """The settings as given, or those of the run to resume with today's overrides on top."""
    if isinstance(cfg.data.get("path"), str) and cfg.data.path not in ("", "-"):
        # Whoever opens the run later may stand in another folder.
        cfg.data.path = str(Path(cfg.data.path).expanduser().absolute())
    build(cfg, TrainConfig)  # a mistake is told before anything is opened
    check_runs()
    if cfg.resume is None:
        check_new(cfg.run_dir)
        return None, cfg
    run = Run.open(cfg.resume, "resume")
    stored = load_run_config(run.config_file)
    overridden = [each.lstrip("+~").partition("=")[0] for each in HydraConfig.get().overrides.task]
    if "experiment" in overridden:
        raise UserError("experiment: a resumed run keeps its settings; leave experiment out")
    settings = with_overrides(stored, cfg, [key for key in overridden if key != "resume"])
    changed = [
        name for name in FIXED if OmegaConf.select(settings, name) != OmegaConf.select(stored, name)
    ]
    if cfg.run_dir is not None:
        raise UserError("run_dir: a resumed run stays in its folder; leave run_dir out")
    if changed:
        raise UserError(
            f"resume: {', '.join(changed)} cannot change in a resumed run; "
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


def _observers(
    config: TrainConfig,
    settings: DictConfig,
    run: Run,
    model: GPT,
    dataset: Dataset,
    progress: Progress,
    device: torch.device,
    is_whole: bool,
) -> list[Observer]:
    """Those whom the settings ask to watch. What they need is imported only if they do.

    Where the model is not whole but cut over several ranks, nobody can call it alone: there are no
    samples and no maps.
    """
    samples = config.observe.samples
    writer = Writer(model, dataset.tokenizer, dataset.document_end)

    @lru_cache(maxsize=1)
    def sample_at(step: int) -> str:  # the last evaluation and the closing words show the same
        return writer.write(
            samples.prompt,
            samples.max_new_tokens,
            samples.seed,
            samples.temperature,
            samples.top_p,
        )

    def sample() -> str:
        if not is_whole:
            return "(no sample: trainer.parallel=fsdp has cut the model; sample.py writes one)"
        return sample_at(progress.step)

    observers: list[Observer] = [MetricsFile(run.metrics_file)]
    if config.observe.terminal:
        from observe.terminal import Terminal

        title = (
            f"{config.data.name}, {config.tokenizer.name} of {model.vocab_size:,} tokens, "
            f"model of {model.n_parameters:,} parameters, {config.optimizer.name}, {device.type}"
        )
        observers.append(
            Terminal(run.path, config.trainer.max_steps, sample, title, config.observe.tensorboard)
        )
    if config.observe.tensorboard:
        from torch.utils.tensorboard import SummaryWriter

        from observe.attention import AttentionMaps
        from observe.tensorboard import TensorBoard

        # What a killed process wrote after its last checkpoint comes again: TensorBoard forgets it.
        events = SummaryWriter(str(run.path), purge_step=progress.step + 1 if progress.step else 0)
        if config.observe.attention.every and is_whole:
            probe = config.observe.attention.probe
            tokens = (
                dataset.val[:100].tolist() if probe is None else dataset.tokenizer.encode(probe)
            )
            pairs = [(token, dataset.tokenizer.decode_bytes([token])) for token in tokens]
            observers.append(AttentionMaps(events, model, pairs, config.observe.attention.every))
        observers.append(
            TensorBoard(
                events,
                OmegaConf.to_yaml(settings, resolve=True),
                _hparams(OmegaConf.to_container(settings, resolve=True)),
                dataset.floor_bpb,
                sample,
            )
        )
    return observers


def _hparams(settings: Any, prefix: str = "") -> dict[str, bool | int | float | str]:
    """The settings of what is trained, by their full names; null as text."""
    if not isinstance(settings, dict):
        return {prefix: "null" if settings is None else settings}
    found: dict[str, bool | int | float | str] = {}
    for key, value in settings.items():
        if key not in ("run_dir", "resume", "cache_dir", "observe", "experiment"):
            found |= _hparams(value, f"{prefix}.{key}" if prefix else key)
    return found


if __name__ == "__main__":
    run_script("train", main)
