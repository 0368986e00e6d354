"""The start of a run, new, finetuned or resumed: from its settings to the parts that train."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from common.device import check_compiler
from common.errors import UserError, print_note, printable
from common.files import naming
from data.corpora import load_dataset
from data.corpus import Corpus
from data.encoding import Dataset
from inference.writer import Writer
from launch.quoting import overridden
from launch.schema import TrainConfig
from launch.settings import Settings, is_in_sweep, open_settings
from live.page import can_have_page
from model import GPT
from observe.build import build_observers
from observe.context import RunContext
from observe.wandb import check_installed
from store.checkpoint import TrainState, load_state
from store.code import check_code, code_version
from store.run import RUNS, Run
from store.settings import read_settings
from store.weights import load_model
from training.callback import Callback
from training.checkpointing import kept
from training.config import check_training_memory
from training.device_check import check_device
from training.distributed import Ranks
from training.optimizer import Optimizer, load_optimizer
from training.precision import Precision, training_precision

log = logging.getLogger("training")
# The ranks of a killed torchrun may be writing their last checkpoint; and of a node that was lost,
# NFS releases the lock after 90 seconds.
LOCK_SECONDS = 120.0


class Started(NamedTuple):
    """The parts of a run that is about to train. The main process has locked its folder.

    state: how far it has come; the model and the optimizer are those of that step.
    precision: what is computed in which dtype.
    """

    config: TrainConfig
    run: Run
    corpus: Corpus
    dataset: Dataset
    model: GPT
    optimizer: Optimizer
    state: TrainState
    precision: Precision

    def observers(self) -> Iterator[Callback]:
        """What follows the run, for the main process."""
        writer = Writer(self.model, self.dataset.tokenizer)
        context = RunContext(
            folder=self.run.path,
            config=self.config,
            varied=frozenset(overridden()),
            model=self.model,
            corpus=self.corpus,
            dataset=self.dataset,
            write_sample=lambda: writer.write(self.config.observe.samples),
            first_step=self.state.step,
            has_page=can_have_page(self.model, self.dataset.tokenizer),
            is_in_sweep=is_in_sweep(),
        )
        return build_observers(self.config.observe, context)


def start(settings: Settings, ranks: Ranks) -> Started | float:
    """The parts of the run that the settings ask for, new, finetuned or resumed; or the validation
    bits per byte of a run that is finished.

    The main process prepares the text and writes to the folder, once everything that may be damaged
    has been loaded. Raises UserError if anything that the settings ask for is missing, damaged, in
    use or too large.
    """
    _check_machine(settings.config, ranks)
    config = settings.config
    weights, state, is_own = _find_weights(settings, ranks)  # locks a run to resume
    if settings.resumed and state.step == config.trainer.max_steps:
        result = settings.resumed.result(state.step)
        if result is not None:
            _finish(settings.resumed, state, ranks)
            return result
    data = partial(load_dataset, trusted=settings.trusts_data, say=ranks.print_main)
    length = config.model.context_length
    corpus, dataset = ranks.main_first(
        lambda: data(config.data, settings.tokenizer, config.cache_dir, length)
    )
    model = _build_model(config, dataset.tokenizer.vocab_size, weights).to(ranks.device)
    precision = training_precision(config.trainer.precision, model, state, config.cache_dir, ranks)
    check_device(ranks.device, precision, config.cache_dir)
    optimizer = Optimizer(model, config.optimizer, config.trainer.max_steps, precision.fast)
    if weights and is_own:
        load_optimizer(optimizer, weights)
    run = settings.resumed or _create(settings, corpus, dataset, ranks)
    if run is None:  # an equal command was faster
        del model, optimizer
        return start(open_settings(settings.composed), ranks)
    if settings.resumed:
        run.check_in_place()
        run.check_tokens(dataset.sha256, "resume")
    if ranks.is_main:
        run.start_log()
        if settings.resumed:
            print(printable(f"continuing {run.path} from step {state.step}"))
            run.diverged_file.unlink(missing_ok=True)
            run.store_settings(settings.values)
            run.store_code(code_version())
            if is_own:
                run.checkpoints.complete(state, *kept(config.trainer))
        if weights and not is_own:
            _report_pretrained(dataset, weights)
    return Started(config, run, corpus, dataset, model, optimizer, state, precision)


def _check_machine(config: TrainConfig, ranks: Ranks) -> None:
    """Before anything is read or written."""
    check_code()
    config.trainer.check_ranks(ranks.world_size)
    if config.observe.wandb:
        check_installed()
    if config.trainer.compile:
        check_compiler(ranks.device)
    check_training_memory(config.model, config.trainer, config.tokenizer.vocab_size, ranks)


def _find_weights(settings: Settings, ranks: Ranks) -> tuple[Path | None, TrainState, bool]:
    """The checkpoint to start from, if any; how far the run has come; and whether the checkpoint is
    its own, so that the optimizer continues from it, too."""
    found = ranks.broadcast(settings.resumed is not None)
    if found != (settings.resumed is not None):
        raise UserError(
            f"run_dir: {settings.config.run_dir} {'is not' if found else 'is'} a run on rank "
            f"{ranks.rank}, unlike on the main process; give a folder that all nodes share"
        )
    own = base = None
    if ranks.is_main and settings.resumed:
        run = settings.resumed
        run.lock("resume", LOCK_SECONDS if settings.is_auto else 0.0)
        # Otherwise it was stopped before its first.
        saved = run.checkpoints
        if saved.steps or saved.best is not None or run.summary_file.exists():
            own = saved.find("last", "resume")
    if ranks.is_main and settings.pretrained:
        base = settings.pretrained.checkpoints.find("last", "init_from")
    own, base = ranks.broadcast((own, base))
    if own is None:
        return base, TrainState(), False
    state, last = load_state(own), settings.config.trainer.max_steps
    if state.step > last:
        raise UserError(
            f"trainer.max_steps: {own.parent.parent} is already at step {state.step}, and cannot "
            f"end at step {last}; give at least {state.step}"
        )
    # Before its first step, a finetuned run may have been evaluated; it is then evaluated again.
    return own, state if state.step else TrainState(), True


def _finish(run: Run, state: TrainState, ranks: Ranks) -> None:
    """What a kill can have prevented at the end of a run, as it was trained, whatever is given
    now."""
    if ranks.is_main:
        trained = read_settings(run.newest_settings_file)["trainer"]
        every = trained["checkpoint_every"] or 1
        run.checkpoints.complete(state, trained["keep_checkpoints"], every)
    ranks.print_main(
        f"{run.path} is finished: nothing to do. To train longer, raise trainer.max_steps."
    )


def _build_model(config: TrainConfig, vocab_size: int, weights: Path | None) -> GPT:
    """The model with the weights of a checkpoint, or without one a new model."""
    torch.manual_seed(config.seed)
    if weights:
        model = load_model(config.model, vocab_size, weights)
    else:
        model = GPT(config.model, vocab_size)
    if config.trainer.activation_checkpointing:
        model.checkpoint_activations()
    return model


def _create(settings: Settings, corpus: Corpus, dataset: Dataset, ranks: Ranks) -> Run | None:
    """The new run; None if another process has just started it by an equal command."""
    run, path = None, settings.config.run_dir
    if ranks.is_main:
        try:
            with naming(Path(path or RUNS)):
                run = Run.create(
                    path,
                    settings.files | {"code.json": code_version()},
                    {"tokens_sha256": dataset.sha256, "text": corpus.fingerprint()},
                    dataset.tokenizer.save,
                )
        except UserError:
            if not (settings.is_auto and path and Path(path, "config.yaml").is_file()):
                raise
    folder = ranks.broadcast(str(run.path) if run else None)
    # Not opened on other ranks: another node may not see all of it yet.
    return run or (Run(Path(folder)) if folder else None)


def _report_pretrained(dataset: Dataset, weights: Path) -> None:
    """Say where finetuning starts, and whether the tokenizer cannot end the text's documents."""
    log.info("finetuning %s", weights)
    print(printable(f"starting from {weights}"))
    if dataset.report and not dataset.tokenizer.eos_ids:  # it has documents
        print_note(
            "note: the tokenizer of init_from has no token that ends a document, so an empty "
            "line separates documents, and samples do not stop there; for samples that stop, train "
            "a new model without init_from"
        )
