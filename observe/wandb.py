"""A run at Weights & Biases: the scalars, images and histograms that TensorBoard has.

wandb itself reads the event files of the run as they are written. It shows no texts and no maps of
the Attention tab. wandb_id in the run's folder holds the name by which a resume finds the run.
"""

from __future__ import annotations

import secrets
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from common.errors import UserError, installing, print, printable
from common.files import read_text, real_path, replace_text
from observe.context import RunContext
from training.callback import Callback

if TYPE_CHECKING:
    import wandb

    from training.trainer import Trainer

PROJECT = "glassgpt"  # unless wandb's settings name another


def check_installed() -> None:
    """Raise UserError if wandb is not."""
    try:
        from wandb import init  # noqa: F401  # any folder named wandb could be imported, too
    except ImportError as error:
        raise UserError(
            f"observe.wandb: needs the library wandb; install it with {installing('wandb')}"
        ) from error


class Wandb(Callback):
    """Follows the event files of the writers that are made after it. If wandb fails, for example
    without a network, a warning says so, and the training goes on."""

    def __init__(self, context: RunContext) -> None:
        self.run: wandb.Run | None = None
        try:
            self.run = start(context)
        except Exception as error:
            warn(error)

    def on_end(self, trainer: Trainer) -> None:
        try:
            if self.run is not None:
                self.run.finish(exit_code=int(trainer.summary is None))
        except Exception as error:
            warn(error)


def warn(error: Exception) -> None:
    print(printable(f"warning: observe.wandb: {error}; the training goes on"), file=sys.stderr)


def start(context: RunContext) -> wandb.Run:
    """A new run of wandb, or that which this run has had."""
    import wandb
    from wandb.integration import tensorboard

    run, id_file = real_path(context.folder), context.folder / "wandb_id"
    if not id_file.exists():
        replace_text(id_file, secrets.token_hex(4) + "\n")
    # What `sync_tensorboard` of `wandb.init` does, apart from copies of the event files.
    tensorboard.unpatch()  # of an earlier run of a sweep
    tensorboard.patch(save=False, root_logdir=str(context.folder))
    given = wandb.setup().settings
    return wandb.init(
        project=given.project or PROJECT,
        group=given.run_group or (run.parent.name if context.is_in_sweep else None),
        name=given.run_name or context.config.name or run.name,
        id=given.run_id or read_text(id_file).strip(),
        resume=given.resume or "allow",
        config=asdict(context.config),
        allow_val_change=True,
    )
