"""The start of a run: its data, the weights that it starts from, and its folder, new or locked."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from common.device import check_compiler
from common.errors import UserError, print, printable
from common.files import naming
from data.corpora import load_dataset
from data.corpus import Corpus
from data.tokens import Dataset
from launch.schema import TrainConfig
from launch.settings import Settings
from observe.wandb import check_installed
from store.checkpoint import TrainState, load_state
from store.code import code_version
from store.run import RUNS, Run, claim
from store.settings import read_settings
from training.checkpointing import kept
from training.config import check_training_memory
from training.distributed import Ranks

log = logging.getLogger("training")
# The ranks of a killed torchrun may be writing their last checkpoint; and of a node that was lost,
# NFS releases the lock after 90 seconds.
LOCK_SECONDS = 120.0


def check_machine(config: TrainConfig, ranks: Ranks) -> None:
    """Raise UserError if what the settings ask for is missing, or does not fit: before anything is
    read or written."""
    config.trainer.check_ranks(ranks.world_size)
    if config.observe.wandb:
        check_installed()
    if config.trainer.compile:
        check_compiler(ranks.device)
    check_training_memory(config.model, config.trainer, config.tokenizer.vocab_size, ranks)


class Start(NamedTuple):
    """Where training begins.

    weights: the checkpoint that has the weights; None for those of a new model.
    state: how far the run has come.
    resumes: whether the checkpoint is the run's own, so that the optimizer continues from it, too.
    """

    weights: Path | None
    state: TrainState
    resumes: bool


@contextmanager
def claimed(settings: Settings, reopen: Callable[[], Settings], ranks: Ranks) -> Iterator[Settings]:
    """Let no other process start the run that the block starts, while its text is prepared. Yields
    the settings, or those of `reopen` if another process has started it meanwhile.

    Raises UserError if another process is starting it; with `is_auto`, after a while.
    """
    path = None if settings.resumed else settings.config.run_dir
    seconds = LOCK_SECONDS if settings.is_auto else 0.0
    with claim(Path(path), seconds) if path and ranks.is_main else nullcontext():
        is_there = path is not None and Path(path, "config.yaml").is_file()
        yield reopen() if ranks.broadcast(is_there) else settings


def find_start(settings: Settings, ranks: Ranks) -> Start:
    """Where training begins: at the last checkpoint of the run to resume, which is locked from here
    on; with the weights of init_from; or with a new model.

    Raises UserError if the run cannot be resumed, or if there is no intact checkpoint.
    """
    found = ranks.broadcast(settings.resumed is not None)
    if found != (settings.resumed is not None):
        raise UserError(
            f"run_dir: {settings.config.run_dir} {'is not' if found else 'is'} a run on rank "
            f"{ranks.rank}, unlike on the main process; give a folder that all nodes share"
        )
    own = base = None
    if ranks.is_main and settings.resumed:
        settings.resumed.lock("resume", LOCK_SECONDS if settings.is_auto else 0.0)
        own = _last_checkpoint(settings.resumed)
    if ranks.is_main and settings.pretrained:
        base = settings.pretrained.checkpoints.find("last", "init_from")
    own, base = ranks.broadcast((own, base))
    if own is None:
        return Start(base, TrainState(), resumes=False)
    state, last = load_state(own), settings.config.trainer.max_steps
    if state.step > last:
        raise UserError(
            f"trainer.max_steps: {own.parent.parent} is already at step {state.step}, and cannot "
            f"end at step {last}; give at least {state.step}"
        )
    # Before its first step, a finetuned run may have been evaluated; it is then evaluated again.
    return Start(own, state if state.step else TrainState(), resumes=True)


def is_finished(settings: Settings, start: Start) -> bool:
    """Whether nothing is left to do for the run to resume."""
    run, last = settings.resumed, settings.config.trainer.max_steps
    return run is not None and start.state.step == last and run.has_summary(last)


def finished_result(run: Run, settings: Settings, start: Start, ranks: Ranks) -> float:
    """The validation bits per byte of a run that is finished, which is said."""
    if ranks.is_main:  # as it was trained, whatever is given now
        trained = read_settings(run.newest_settings_file)["trainer"]
        every = trained["checkpoint_every"] or 1
        run.checkpoints.complete(start.state, trained["keep_checkpoints"], every)
    ranks.print_main(
        f"{run.path} is finished: nothing to do. To train longer, raise trainer.max_steps."
    )
    return run.val_bpb


def load_data(settings: Settings, ranks: Ranks) -> tuple[Corpus, Dataset]:
    """The corpus and its tokens. The main process prepares them, and says what it finds."""
    config = settings.config
    return ranks.main_first(
        lambda: load_dataset(
            config.data,
            settings.tokenizer,
            config.cache_dir,
            config.model.context_length,
            trusted=settings.trusts_data,
            say=ranks.print_main,
        )
    )


def start_run(settings: Settings, dataset: Dataset, start: Start, ranks: Ranks) -> Run:
    """The run to train: a new one, or that to resume, with today's settings. The main process alone
    writes to it, once everything that may be damaged has been loaded. Raises UserError if a new one
    cannot be created, or if the text of the other has changed."""
    run = settings.resumed
    if run:
        run.check_in_place()
        run.check_tokens(dataset.sha256, "resume")
    else:
        run = _create(settings, dataset, ranks)
    if ranks.is_main:
        run.start_log()
        if settings.resumed:
            print(printable(f"continuing {run.path} from step {start.state.step}"))
            run.store_settings(settings.values)
            if start.resumes:
                run.checkpoints.complete(start.state, *kept(settings.config.trainer))
        if start.weights and not start.resumes:
            _report_pretrained(dataset, start.weights)
    return run


def _create(settings: Settings, dataset: Dataset, ranks: Ranks) -> Run:
    run, path = None, settings.config.run_dir
    if ranks.is_main:
        with naming(Path(path or RUNS)):
            run = Run.create(
                path,
                settings.yaml,
                settings.hydra_files,
                dataset.sha256,
                dataset.tokenizer.save,
                code_version(),
            )
    folder = ranks.broadcast(str(run.path) if run else "")
    return run or Run(Path(folder))  # not opened: another node may not see all of it yet


def _last_checkpoint(run: Run) -> Path | None:
    """The last intact checkpoint of a run; None if it was stopped before its first. Raises
    UserError if there are none left."""
    if run.checkpoints:
        return run.checkpoints.find("last", "resume")
    if run.checkpoints.has_best or run.summary_file.exists():
        raise UserError(
            f"resume: {run.checkpoints.folder} has lost its checkpoints; put one back, or "
            "start a new run"
        )
    return None


def _report_pretrained(dataset: Dataset, weights: Path) -> None:
    """Say where finetuning starts, and whether the tokenizer cannot end the text's documents."""
    log.info("finetuning %s", weights)
    print(printable(f"starting from {weights}"))
    if dataset.report and not dataset.tokenizer.eos_ids:  # it has documents
        print(
            "note: the tokenizer of init_from has no token that ends a document, so an empty "
            "line separates documents, and samples do not stop there; for samples that stop, train "
            "a new model without init_from",
            file=sys.stderr,
        )
