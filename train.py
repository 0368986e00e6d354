"""Train a GPT: compose the settings, build the parts, fit. `--help` lists the settings."""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

from training.signals import Stopped, stop_at_once, stop_with_readers

if __name__ == "__main__":
    stop_at_once()  # the imports below take a second or two

import logging
import math
import os
import re
import shlex
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from torch import nn

from configs.cli import overridden, run_script, setting_name
from configs.defaults import changed
from configs.finetuning import experiment_settings, finetuned_config
from configs.schema import TrainConfig, build, flat, literal, resumed_config
from configs.sweep import named_output
from data import Corpus, Dataset, Tokenizer, TokenizerConfig, open_corpus, prepare
from data.batches import Batches, Windows
from data.sources import is_url
from data.tokenizer import IMPORTED
from data.tokens import document_starts
from errors import UserError, check_path, printable
from inference import Writer, new_model
from inference.base import Base, open_base
from live.page import is_possible
from model import GPT, is_sharded
from model.loss import PART_BYTES
from observe.build import build_observers
from observe.cost import Cost
from observe.observed import ObservedRun
from training.config import n_tokens
from training.device import check_memory, choose_device, keep_freed_memory, uses_bf16
from training.optimizer import Optimizer
from training.peaks import find_peak
from training.progress import Progress, load_progress
from training.ranks import Ranks, join_ranks, leave_ranks
from training.run import Run, check_new
from training.trainer import Diverged, Reports, Trainer, TrainingData
from training.weights import check_weights, load_optimizer, load_weights

log = logging.getLogger("training")
AUTO = "auto"  # resume=auto
# The ranks of a killed torchrun may be writing their last checkpoint; and of a node that was lost,
# NFS releases the lock after 90 seconds.
LOCK_SECONDS = 120.0
STARTS = ("experiment", "init_from")  # what only the start of a run reads


class Settings(NamedTuple):
    """The settings of this run, as Hydra composed them and as checked dataclasses."""

    composed: DictConfig
    config: TrainConfig
    trusts_data: bool  # `data` comes from the command line, and not with a run
    base: Base | None = None  # the run whose model and tokenizer a new one starts with
    is_auto: bool = False  # resume=auto has found a run

    @property
    def yaml(self) -> str:
        """All settings as a file, without interpolations."""
        return OmegaConf.to_yaml(self.composed, resolve=True)


class Start(NamedTuple):
    """The run to train, its progress, and the checkpoint to load: None for a new run, or for one
    that was stopped before its first."""

    run: Run
    progress: Progress
    checkpoint: Path | None


def main(cfg: DictConfig) -> float | None:
    """Train one run; returns its validation bits per byte, which sweepers minimise.

    In a sweep, a run that diverges is reported and counts as infinitely bad; the others continue.
    """
    if HydraConfig.get().mode != RunMode.MULTIRUN:
        return train(cfg)
    with named_output(HydraConfig.get()) as name:
        try:
            return train(cfg)
        except Diverged as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            return math.inf


def train(cfg: DictConfig) -> float | None:
    """Train on every rank, from settings to summary; the main process alone writes to the run."""
    stop_with_readers()
    resumed, settings = open_settings(cfg)
    config = settings.config
    device = choose_device(config.trainer.device)
    keep_freed_memory()
    with join_ranks(device) as ranks:
        check_ranks(config, ranks)
        check_same_start(config, resumed, ranks)
        try:
            return fit(settings, resumed, ranks)
        except RuntimeError as error:
            if not re.search("closed by peer|reset by peer", str(error)):
                raise
            print(f"rank {ranks.rank}: stopped, because another rank failed", file=sys.stderr)
            sys.exit(2)


def fit(settings: Settings, resumed: Run | None, ranks: Ranks) -> float | None:
    """Build the parts and train; returns the validation bits per byte."""
    config = settings.config
    weights = find_base_weights(settings.base, ranks) if settings.base else None
    check_model_memory(config, ranks)
    corpus, dataset = load_data(settings, resumed, ranks)
    vocab_size = dataset.tokenizer.vocab_size
    start = resume_run(resumed, settings, dataset, ranks) if resumed else None
    if start and is_finished(start, config, ranks):
        return None
    if start and start.checkpoint:
        check_weights(config.model, vocab_size, start.checkpoint)
        weights = start.checkpoint
    model, parallel_model = build_model(config, dataset.tokenizer, weights, ranks)
    start = start or create_run(settings, dataset, ranks)
    optimizer = Optimizer(model, config.optimizer, config.trainer.max_steps)
    if start.checkpoint:
        load_optimizer(optimizer, start.checkpoint)

    if ranks.is_main:
        start.run.start_log()
        if settings.is_auto:
            print(printable(f"continuing {start.run.path} from step {start.progress.step}"))
        if settings.base:
            report_start(config, weights)
        start.run.store_settings(settings.yaml)
        start.run.point_latest()
    observed = observe_run(settings, start, model, corpus, dataset, ranks)
    trainer = Trainer(
        config.trainer,
        parallel_model,
        optimizer,
        training_data(config, dataset),
        Reports(start.run.checkpoints, build_observers(config.observe, observed)),
        start.progress,
        ranks,
    )
    val_bpb = run_trainer(trainer, start.run)
    log.info("maps, scores, samples, embeddings and histograms took %s", observed.cost)
    return val_bpb


def open_settings(cfg: DictConfig) -> tuple[Run | None, Settings]:
    """The settings as given, or the run to resume and its settings with today's overrides."""
    path = cfg.data.get("path")
    if isinstance(path, str) and path not in ("", "-") and not is_url(path):
        cfg.data.path = literal(lasting_path(cfg.data.path))
    is_auto = cfg.resume == AUTO
    if is_auto:
        run = find_run_to_continue(cfg.run_dir)
        cfg.resume = None  # a new run has the settings of any other
    else:
        run = None if cfg.resume is None else Run.open(cfg.resume, "resume")
    if run is None:
        return None, new_settings(cfg)
    if is_auto:
        check_first_command(run)
    elif cfg.init_from is not None:
        raise UserError(
            "init_from: cannot be combined with resume, which continues with the run's own "
            "weights; leave one of them out"
        )
    elif cfg.run_dir is not None:
        raise UserError("run_dir: a resumed run stays in its folder; leave run_dir out")
    elif "experiment" in overridden():
        raise UserError("experiment: a resumed run keeps its settings; leave experiment out")
    overrides = [each for each in overridden() if each not in ("resume", "run_dir", *STARTS)]
    composed = resumed_config(run, cfg, overrides)
    trusts_data = any(name.partition(".")[0] == "data" for name in overrides)
    config = build(composed, TrainConfig)
    return run, Settings(composed, config, trusts_data, is_auto=is_auto)


def new_settings(cfg: DictConfig) -> Settings:
    """The settings of a new run, checked, also where it is to be created."""
    base = None if cfg.init_from is None else open_base(cfg.init_from)
    if base:
        cfg.init_from = literal(lasting_path(str(base.run.path)))
        cfg = finetuned_config(cfg, base.model_config, base.tokenizer_config, given_settings())
    elif cfg.tokenizer.name == IMPORTED:
        raise UserError(
            f"tokenizer.name: {IMPORTED} comes with init_from only; choose another tokenizer"
        )
    settings = Settings(cfg, build(cfg, TrainConfig), trusts_data=True, base=base)
    check_new(cfg.run_dir)
    return settings


def find_run_to_continue(run_dir: str | None) -> Run | None:
    """The run that resume=auto continues; None if there is none yet."""
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        raise UserError(f"resume: {AUTO} cannot be combined with -m; resume each run by its folder")
    if run_dir is None:
        raise UserError(
            f"resume: {AUTO} starts or continues the run in run_dir; add run_dir=runs/NAME"
        )
    check_path("run_dir", run_dir)
    return Run.open(run_dir, "run_dir") if Path(run_dir, "config.yaml").is_file() else None


def check_first_command(run: Run) -> None:
    """Raise UserError if the run was started with another experiment, or from another run."""
    for override in HydraConfig.get().overrides.task:
        name = setting_name(override)
        if name in STARTS and not run.was_given(OmegaConf.to_yaml(OmegaConf.create([override]))):
            raise UserError(
                f"{name}: {run.path} was not started with this value, and cannot change it; "
                "give the value of the first start, or another run_dir"
            )


def given_settings() -> set[str]:
    """The names of the settings, and of their groups, that the command line or the experiment
    sets."""
    runtime = HydraConfig.get().runtime
    folders = [Path(each.path) for each in runtime.config_sources if each.schema == "file"]
    experiment = runtime.choices.get("experiment")
    return {*overridden(), *(experiment_settings(experiment, folders) if experiment else ())}


def lasting_path(path: str) -> str:
    """`path` for someone who opens the run later, perhaps in another folder: absolute."""
    absolute = Path(os.path.expanduser(path)).absolute()  # noqa: PTH111 (accepts unknown users)
    try:
        str(absolute).encode()
    except UnicodeEncodeError:  # a folder whose name is not UTF-8 cannot be stored
        return path
    return str(absolute)


def check_model_memory(config: TrainConfig, ranks: Ranks) -> None:
    """Raise UserError if the model cannot fit into the memory of the devices.

    Counts a lower bound for a rank: its share of weights, gradients and one optimizer state per
    weight; the token ids of a batch; and for its share of one part of a batch, the inputs of blocks
    and the logits that are in memory at once. The text, which can take minutes, is not read yet:
    without a `vocab_size`, 256 tokens are assumed.
    """
    vocab_size = config.tokenizer.vocab_size or 256
    model, trainer = config.model, config.trainer
    _, n_local = ranks.nodes()
    holders = {"ddp": 1, "fsdp": ranks.world_size, "hsdp": n_local}[trainer.parallel]
    sequences = trainer.batch_size / trainer.grad_accumulation / ranks.world_size
    tokens = sequences * model.context_length
    activations = tokens * model.d_model * model.n_layers
    # Compiled code keeps all logits, in bfloat16 or float32.
    logits = (
        tokens * vocab_size / 2 if trainer.compile else min(tokens * vocab_size, PART_BYTES / 4)
    )
    needed = 4 * (3 * model.n_weights(vocab_size) / holders + activations + logits)
    needed += 16 * trainer.batch_size * model.context_length  # inputs and targets, int64
    if ranks.device.type == "cpu":  # the ranks of a node share its memory
        needed *= n_local
    smaller = "trainer.batch_size or model.context_length, a larger trainer.grad_accumulation"
    if ranks.world_size > 1 and trainer.parallel == "ddp":
        smaller += ", or trainer.parallel=fsdp"
    check_memory(int(needed), ranks.device, "training", smaller)


def check_ranks(config: TrainConfig, ranks: Ranks) -> None:
    """Raise UserError if the ranks cannot share a batch."""
    parts = ranks.world_size * config.trainer.grad_accumulation
    if config.trainer.batch_size % parts:
        raise UserError(
            f"trainer.batch_size: {config.trainer.batch_size} cannot be divided among "
            f"{ranks.world_size} ranks in {config.trainer.grad_accumulation} parts; "
            f"give a multiple of {parts}"
        )


def check_same_start(config: TrainConfig, resumed: Run | None, ranks: Ranks) -> None:
    """Raise UserError unless all ranks have found a run to resume, or none."""
    found = str(bool(resumed))
    if ranks.broadcast(found) != found:
        raise UserError(
            f"run_dir: {config.run_dir} {'is' if resumed else 'is not'} a run on rank {ranks.rank},"
            " unlike on the main process; give a folder that all nodes share"
        )


def _is_sharded(config: TrainConfig, ranks: Ranks) -> bool:
    return ranks.world_size > 1 and config.trainer.parallel != "ddp"


def find_base_weights(base: Base, ranks: Ranks) -> Path:
    """The checkpoint to start from, checked by the main process."""
    return Path(ranks.broadcast(str(base.find_weights()) if ranks.is_main else ""))


def report_start(config: TrainConfig, weights: Path | None) -> None:
    """Say where finetuning starts, and which learning rate may have been forgotten."""
    log.info("finetuning %s", weights)
    print(printable(f"starting from {weights}"))
    given, others_lr = given_settings(), config.optimizer.adamw_lr
    if others_lr is not None and "optimizer.lr" in given and "optimizer.adamw_lr" not in given:
        print(
            f"note: optimizer.adamw_lr is still {others_lr}, for embeddings, norms and biases; "
            "set it too, or choose optimizer=adamw",
            file=sys.stderr,
        )


def build_model(
    config: TrainConfig, tokenizer: Tokenizer, weights: Path | None, ranks: Ranks
) -> tuple[GPT, nn.Module]:
    """The model, with the weights of a checkpoint or with new ones, and the module to call in
    training. If it is sharded, no rank ever holds all weights."""
    torch.manual_seed(config.seed)
    model = new_model(config.model, tokenizer, _is_sharded(config, ranks))
    if config.trainer.activation_checkpointing:
        model.checkpoint_activations()
    in_bf16 = uses_bf16(ranks.device, config.trainer.precision, model)
    parallel_model = ranks.parallelize(model, config.trainer.parallel, in_bf16)
    if is_sharded(model):
        model.allocate(ranks.device)
        if not weights:
            model.initialise()
        # FSDP2 decides at the first forward pass which module is the root, and observers can call
        # blocks alone before the first step. A forward pass here would gather every parameter.
        model._get_fsdp_state()._lazy_init()  # type: ignore[operator]
    if weights:
        load_weights(model, weights)
    return model, parallel_model


def load_data(settings: Settings, resumed: Run | None, ranks: Ranks) -> tuple[Corpus, Dataset]:
    """The corpus and its tokens; the main process prepares them."""
    config = settings.config
    with ranks.main_process_first():
        corpus = open_corpus(config.data, settings.trusts_data)
        if ranks.is_main and corpus.description:
            print(printable(corpus.description))
        tokenizer: Tokenizer | TokenizerConfig = config.tokenizer
        if resumed:
            tokenizer = Tokenizer.load(resumed.tokenizer_folder)
        elif settings.base:
            tokenizer = settings.base.tokenizer
        dataset = prepare(corpus, tokenizer, config.cache_dir, config.model.context_length)
        if ranks.is_main and dataset.report:
            print(dataset.report)
        return corpus, dataset


def training_data(config: TrainConfig, dataset: Dataset) -> TrainingData:
    """What the trainer reads: training batches, validation windows, the bytes of each token."""
    trainer, length, tokenizer = config.trainer, config.model.context_length, dataset.tokenizer
    find_starts = partial(
        document_starts, tokenizer=tokenizer, document_end=config.data.document_end
    )
    starts = find_starts(dataset.val)
    whole = Windows(dataset.val, length, trainer.batch_size, starts, bits=dataset.val_bits)
    return TrainingData(
        config.seed,
        Batches(
            dataset.train,
            trainer.batch_size,
            length,
            config.seed,
            find_starts if config.data.document_end else None,
        ),
        whole.part(trainer.scored_tokens(trainer.batch_size * length)),
        whole.part(n_tokens(trainer.final_eval_tokens)),
        torch.from_numpy(tokenizer.token_bytes),
    )


def create_run(settings: Settings, dataset: Dataset, ranks: Ranks) -> Start:
    """Create a run on the main process, and open it on the others."""
    hydra, path = HydraConfig.get(), settings.config.run_dir
    if hydra.mode == RunMode.MULTIRUN:
        if path is not None:
            raise UserError("run_dir: with -m every run has its own; give hydra.sweep.dir instead")
        path = str(Path(hydra.sweep.dir) / hydra.sweep.subdir)
    run = None
    if ranks.is_main:
        run = Run.create(
            path,
            settings.yaml,
            {
                "config.yaml": OmegaConf.to_yaml(settings.composed),
                "overrides.yaml": OmegaConf.to_yaml(hydra.overrides.task),
                "hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra})),
            },
            dataset.sha256,
            dataset.tokenizer.save,
        )
    folder = ranks.broadcast(str(run.path) if run else "")
    progress = Progress(evaluated=None if settings.base else 0)
    return Start(run or Run.open(folder, "run_dir"), progress, None)


def resume_run(run: Run, settings: Settings, dataset: Dataset, ranks: Ranks) -> Start:
    """Lock the run and find its last intact checkpoint."""
    config = settings.config
    run.check_tokens(dataset.sha256, "resume")
    run.check_contents("resume")
    found, refusal = "", None
    if ranks.is_main:
        try:
            run.lock("resume", LOCK_SECONDS if settings.is_auto else 0.0)
        except OSError as error:
            refusal = error  # such as a read-only disk, which does not matter to a finished run
        if run.checkpoints:
            found = str(run.checkpoints.find("last", "resume"))
        elif os.path.lexists(run.checkpoints.folder / "last") or run.summary_file.exists():
            raise UserError(
                f"resume: {run.checkpoints.folder} has lost its checkpoints; put one back, or "
                "start a new run"
            )
    found = ranks.broadcast(found)
    if not found and config.init_from is not None:
        raise UserError(
            f"resume: {run.path} was stopped before it had saved the weights of init_from; "
            f"start a new run with init_from={shlex.quote(config.init_from)}"
        )
    checkpoint = Path(found) if found else None
    progress = load_progress(checkpoint) if checkpoint else Progress()
    if progress.step > (max_steps := config.trainer.max_steps):
        raise UserError(
            f"trainer.max_steps: {run.path} is already at step {progress.step}, and cannot end at "
            f"step {max_steps}; give at least {progress.step}"
        )
    if refusal and progress.step < config.trainer.max_steps:
        raise refusal
    return Start(run, progress, checkpoint)


def is_finished(start: Start, config: TrainConfig, ranks: Ranks) -> bool:
    """Whether a resumed run has all its steps and its summary. If so, print that."""
    step = start.progress.step
    if step < config.trainer.max_steps or not start.run.has_summary(step):
        return False
    if ranks.is_main:
        print(
            f"{start.run.path} has already completed its {step} steps: nothing to do. "
            f"To train longer, set trainer.max_steps to more than {step}."
        )
    return True


def observe_run(
    settings: Settings, start: Start, model: GPT, corpus: Corpus, dataset: Dataset, ranks: Ranks
) -> ObservedRun:
    """The run as observers see it."""
    trainer, cost = settings.config.trainer, Cost()
    peak, is_bf16 = trainer.peak_tflops, uses_bf16(ranks.device, trainer.precision, model)
    # Of a sweep, the settings that are the same in all runs.
    constant = HydraConfig.get().job.config.override_dirname.exclude_keys
    values = flat(OmegaConf.to_container(settings.composed, resolve=True))
    return ObservedRun(
        folder=start.run.path,
        settings=values,
        settings_yaml=settings.yaml,
        varied=frozenset(overridden()).difference(constant),
        changed=changed(values),
        model=model,
        corpus=corpus,
        dataset=dataset,
        device=ranks.device,
        first_step=start.progress.step,
        max_steps=trainer.max_steps,
        pauses=(trainer.eval_every, trainer.checkpoint_every, trainer.max_steps),
        sample=make_sampler(settings.config, start.progress, model, dataset, cost),
        sample_every=settings.config.observe.samples.every,
        is_sharded=is_sharded(model),
        is_main=ranks.is_main,
        n_devices=ranks.world_size,
        peak_flops=find_peak(ranks.device, is_bf16) if peak is None else peak * 1e12,
        has_page=is_possible(model, dataset.tokenizer),
        cost=cost,
    )


def make_sampler(
    config: TrainConfig, progress: Progress, model: GPT, dataset: Dataset, cost: Cost
) -> Callable[[], str]:
    """A function that samples a text from the current model, once per step. All ranks of a sharded
    model must call it together."""
    if is_sharded(model) and not config.observe.sharded:
        return lambda: "(no sample: observe.sharded=false; use sample.py)"
    writer = Writer(model, dataset.tokenizer, config.data.document_end)

    @lru_cache(maxsize=1)
    def sample_at(step: int) -> str:  # several observers show the same sample
        with cost:
            return writer.write(config.observe.samples)

    return lambda: sample_at(progress.step)


def run_trainer(trainer: Trainer, run: Run) -> float:
    """Train to the end and write the summary; a signal or divergence ends the process."""
    is_main = trainer.ranks.is_main
    try:
        summary = trainer.fit()
        if is_main:
            run.write_summary(summary)
    except Stopped as stopped:
        if is_main:
            command = shlex.join(["python", "train.py", f"resume={run.path}"])
            print(f"{stopped}. To continue: {command}", file=sys.stderr)
        sys.exit(stopped.status)
    except (UserError, OSError) as error:
        if is_main:
            run.check_in_place()
        if is_main or isinstance(error, OSError):
            raise
        sys.exit(2)  # the main process reports it
    return summary.val_bpb


if __name__ == "__main__":
    try:
        run_script("train", main)
    except SystemExit as end:
        if isinstance(end.code, int):
            leave_ranks(end.code)
        raise
    leave_ranks()
