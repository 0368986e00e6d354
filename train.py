"""Train a GPT: compose the settings, build the parts, fit. `--help` lists the settings.

Prints progress, evaluations and the result to standard output; the run itself is a folder under
runs/. Exit status 0; 2 for a mistake in the settings, a run that diverged, or output that cannot be
written; 143, 130 or 129 if SIGTERM, Ctrl-C or SIGHUP stopped it, after which `resume=` continues.
"""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import math
import sys

from common.device import choose_device, keep_freed_memory
from common.settings import Values
from launch.cli import run_script
from launch.schema import TrainConfig
from launch.settings import Settings, is_in_sweep, open_settings
from launch.start import start
from training.checkpointing import Checkpointing
from training.config import training_data
from training.distributed import join_ranks, leaving_ranks
from training.evaluation import Evaluation, Metrics
from training.guard import Diverged, NonFiniteGuard
from training.signals import StopOnSignal, exit_stopped
from training.trainer import Trainer


def main(values: Values) -> float:
    """Train one run; returns its validation bits per byte, the objective of sweepers.

    In a sweep, a run that diverges is reported and counts as infinitely bad; the others continue.
    """
    try:
        return train(open_settings(values))
    except Diverged as error:
        if not is_in_sweep():
            raise
        print(f"error: {error}", file=sys.stderr)
        return math.inf


def train(settings: Settings) -> float:
    """Train on every rank, from settings to summary; the main process alone writes to the run."""
    keep_freed_memory()
    with join_ranks(choose_device(settings.config.trainer.device)) as ranks:
        started = start(settings, ranks)
        if isinstance(started, float):  # nothing is left to do
            return started
        config, run, state = started.config, started.run, started.state
        data = training_data(
            started.dataset, config.trainer, config.model.context_length, config.seed
        )
        is_finetuned = config.init_from is not None
        with run.in_place():
            # The order matters: the guard counts the skipped steps before others read the state,
            # and a step is saved before it is evaluated.
            callbacks = [
                StopOnSignal(),
                NonFiniteGuard(),
                Metrics(data.token_bytes),
                *(started.observers() if ranks.is_main else []),
                Checkpointing(run.checkpoints, is_finetuned),
                Evaluation(data.validation, data.final_validation, data.token_bytes, is_finetuned),
            ]
            trainer = Trainer(
                config.trainer,
                ranks.wrap(started.model),
                started.optimizer,
                data.batches,
                state,
                config.seed,
                ranks,
                callbacks,
                precision=started.precision,
                check=run.check_in_place,
            )
            try:
                summary = trainer.fit()
            except Diverged:
                if ranks.is_main:
                    run.mark_diverged(state.step)
                raise
            if summary and ranks.is_main:
                run.write_summary(summary)
                trainer.call("on_result")
    if summary is None:
        exit_stopped(trainer, run.path)
    return summary.val_bpb


if __name__ == "__main__":
    with leaving_ranks():
        run_script("train", main, TrainConfig)
