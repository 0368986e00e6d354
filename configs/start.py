"""The start of a run: its data, its folder, new or locked, and the checkpoint that it continues."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import NamedTuple

from common.errors import UserError, print, printable
from common.files import naming
from configs.code import code_version
from configs.settings import Settings
from data import Corpus, Dataset, load_dataset
from training.distributed import Ranks
from training.run import RUNS, Run
from training.state import TrainState, load_state

log = logging.getLogger("training")
# The ranks of a killed torchrun may be writing their last checkpoint; and of a node that was lost,
# NFS releases the lock after 90 seconds.
LOCK_SECONDS = 120.0
SPELLED, SPELLS_BADLY = 100_000, 0.6  # tokens that are looked at; bytes per token, of the former


class Start(NamedTuple):
    """The run to train, its state, and the checkpoint to load: None for a new run, or for one that
    was stopped before its first."""

    run: Run
    state: TrainState
    checkpoint: Path | None


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


def create_or_resume(settings: Settings, dataset: Dataset, ranks: Ranks) -> Start | None:
    """Create the run, or lock the one to resume and find its last intact checkpoint; None if that
    is finished. The main process alone writes. Raises UserError if the run cannot be started or
    resumed."""
    found = ranks.broadcast(settings.resumed is not None)
    if found != (settings.resumed is not None):
        raise UserError(
            f"run_dir: {settings.config.run_dir} {'is not' if found else 'is'} a run on rank "
            f"{ranks.rank}, unlike on the main process; give a folder that all nodes share"
        )
    if settings.resumed:
        start = _resume(settings.resumed, settings, dataset, ranks)
    else:
        start = _create(settings, dataset, ranks)
    run, step = start.run, start.state.step
    if step == settings.config.trainer.max_steps and run.has_summary(step):
        ranks.print_main(
            f"{run.path} has already completed its {step} steps: nothing to do. "
            f"To train longer, set trainer.max_steps to more than {step}."
        )
        return None
    return start


def _create(settings: Settings, dataset: Dataset, ranks: Ranks) -> Start:
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
    return Start(run or Run.open(folder, "run_dir"), TrainState(), None)


def _resume(run: Run, settings: Settings, dataset: Dataset, ranks: Ranks) -> Start:
    config = settings.config
    run.check_tokens(dataset.sha256, "resume")
    found, refusal = "", None
    if ranks.is_main:
        try:
            run.lock("resume", LOCK_SECONDS if settings.is_auto else 0.0)
        except OSError as error:
            refusal = error  # such as a read-only disk, which does not matter to a finished run
        if run.checkpoints:
            found = str(run.checkpoints.find("last", "resume"))
        elif run.checkpoints.has_best or run.summary_file.exists():
            raise UserError(
                f"resume: {run.checkpoints.folder} has lost its checkpoints; put one back, or "
                "start a new run"
            )
    found = ranks.broadcast(found)
    checkpoint = Path(found) if found else None
    state = load_state(checkpoint) if checkpoint else TrainState()
    if not state.step:  # a finetuned run was evaluated, too, which is repeated
        state = TrainState()
    if state.step > (max_steps := config.trainer.max_steps):
        raise UserError(
            f"trainer.max_steps: {run.path} is already at step {state.step}, and cannot end at "
            f"step {max_steps}; give at least {state.step}"
        )
    if refusal and state.step < max_steps:
        raise refusal
    return Start(run, state, checkpoint)


def record_start(
    settings: Settings, start: Start, dataset: Dataset, pretrained: Path | None
) -> None:
    """Write to the run that training starts, from the weights `pretrained` if they are given, and
    say so: once everything that may be damaged has been loaded. For the main process."""
    run = start.run
    run.start_log()
    if settings.is_auto and settings.resumed:
        print(printable(f"continuing {run.path} from step {start.state.step}"))
    if pretrained and not start.checkpoint:
        _report_pretrained(settings, dataset, pretrained)
    run.store_settings(settings.yaml)


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
