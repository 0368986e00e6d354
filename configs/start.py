"""The start of a run: its data, the weights that it starts from, and its folder, new or locked."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from common.errors import UserError, print, printable
from common.files import naming
from configs.schema import TrainConfig
from configs.settings import Settings
from data.corpora import load_dataset
from data.corpus import Corpus
from data.tokens import Dataset
from observe.wandb import check_installed
from training.code import code_version
from training.config import check_training_memory
from training.device import check_compiler
from training.distributed import Ranks
from training.run import RUNS, Run
from training.state import TrainState, load_state

log = logging.getLogger("training")
# The ranks of a killed torchrun may be writing their last checkpoint; and of a node that was lost,
# NFS releases the lock after 90 seconds.
LOCK_SECONDS = 120.0
SPELLED, SPELLS_BADLY = 100_000, 0.6  # tokens that are looked at; bytes per token, of the former


def check_machine(config: TrainConfig, ranks: Ranks) -> None:
    """Raise UserError if what the settings ask for is missing, or does not fit: before anything is
    read or written."""
    config.trainer.check_ranks(ranks.world_size)
    if config.observe.wandb:
        check_installed()
    if config.trainer.compile:
        check_compiler(ranks.device)
    check_training_memory(config.model, config.trainer, config.tokenizer.vocab_size, ranks)


def find_start(settings: Settings, ranks: Ranks) -> tuple[Path | None, TrainState | None]:
    """The checkpoint whose weights training starts from, and how far the run has come: the last of
    the run to resume, which is locked; or that of init_from, without a state; or neither.

    Raises UserError if the run cannot be resumed, or if there is no intact checkpoint.
    """
    found = ranks.broadcast(settings.resumed is not None)
    if found != (settings.resumed is not None):
        raise UserError(
            f"run_dir: {settings.config.run_dir} {'is not' if found else 'is'} a run on rank "
            f"{ranks.rank}, unlike on the main process; give a folder that all nodes share"
        )
    own = pretrained = None
    if ranks.is_main:
        own = _lock_and_find(settings.resumed, settings) if settings.resumed else None
        pretrained = settings.pretrained.find_weights() if settings.pretrained else None
    own, pretrained = ranks.broadcast((own, pretrained))
    if own is None:
        return pretrained, None
    state = load_state(own)
    # Before its first step, a finetuned run may have been evaluated; it is then evaluated again.
    return own, state if state.step else TrainState()


def load_data(settings: Settings, ranks: Ranks) -> tuple[Corpus | None, Dataset]:
    """The corpus, if its text is at hand, and its tokens. The main process prepares them, and says
    what it finds."""
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


def is_finished(settings: Settings, state: TrainState | None, ranks: Ranks) -> bool:
    """Whether nothing is left to do for the run to resume, which is then said. Raises UserError if
    it has taken more steps than it is to take."""
    run, last = settings.resumed, settings.config.trainer.max_steps
    if run is None or state is None:
        return False
    if state.step > last:
        raise UserError(
            f"trainer.max_steps: {run.path} is already at step {state.step}, and cannot end at "
            f"step {last}; give at least {state.step}"
        )
    if state.step < last or not run.has_summary(last):
        return False
    ranks.print_main(
        f"{run.path} has already completed its {last} steps: nothing to do. "
        f"To train longer, set trainer.max_steps to more than {last}."
    )
    return True


def start_run(
    settings: Settings,
    dataset: Dataset,
    checkpoint: Path | None,
    state: TrainState | None,
    ranks: Ranks,
) -> Run:
    """The run to train: a new one, or that to resume, with today's settings. The main process alone
    writes to it, once everything that may be damaged has been loaded. Raises UserError if a new one
    cannot be created, or if the text of the other has changed."""
    run = settings.resumed
    if run:
        run.check_tokens(dataset.sha256, "resume")
    else:
        run = _create(settings, dataset, ranks)
    if ranks.is_main:
        run.start_log()
        if settings.is_auto and settings.resumed:
            step = state.step if state else 0
            print(printable(f"continuing {run.path} from step {step}"))
        if checkpoint and state is None:
            _report_pretrained(settings, dataset, checkpoint)
        run.store_settings(settings.yaml)
    return run


def _create(settings: Settings, dataset: Dataset, ranks: Ranks) -> Run:
    run, path = None, settings.run_dir
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


def _lock_and_find(run: Run, settings: Settings) -> Path | None:
    """The last intact checkpoint of a run, which is locked; None if it was stopped before its
    first. Raises UserError if there are none left, or if another process trains the run."""
    refusal = None
    try:
        run.lock("resume", LOCK_SECONDS if settings.is_auto else 0.0)
    except OSError as error:
        refusal = error  # such as a read-only disk, which does not matter to a finished run
    if not run.checkpoints:
        if run.checkpoints.has_best or run.summary_file.exists():
            raise UserError(
                f"resume: {run.checkpoints.folder} has lost its checkpoints; put one back, or "
                "start a new run"
            )
        found = None
    else:
        found = run.checkpoints.find("last", "resume")
    if refusal and not run.has_summary(settings.config.trainer.max_steps):
        raise refusal
    return found


def _report_pretrained(settings: Settings, dataset: Dataset, weights: Path) -> None:
    """Say where finetuning starts, and whether the tokenizer fits the text badly or cannot end its
    documents."""
    log.info("finetuning %s", weights)
    print(printable(f"starting from {weights}"))
    assert settings.pretrained
    was = settings.pretrained.bytes_per_token
    is_now = float(dataset.tokenizer.token_bytes[dataset.train[:SPELLED]].mean())
    if was is not None and is_now < SPELLS_BADLY * was:
        print(
            f"note: a token spells {is_now:.1f} bytes of this text, and {was:.1f} of the text that "
            "the model was trained on: less of it fits the context, and it takes longer to learn; "
            "to spell it better, train a new model without init_from",
            file=sys.stderr,
        )
    if dataset.report and not dataset.tokenizer.eos_ids:  # it has documents
        print(
            "note: the tokenizer of init_from has no token that ends a document, so an empty "
            "line separates documents, and samples do not stop there; for samples that stop, train "
            "a new model without init_from",
            file=sys.stderr,
        )
