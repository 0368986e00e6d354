"""A run at Weights & Biases: the scalars, images and histograms that TensorBoard has.

wandb itself reads the event files of the run as they are written. It shows no texts and no maps of
the Attention tab. wandb_id in the run's folder holds the name by which a resume finds the run.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict
from typing import TYPE_CHECKING

from common.errors import UserError, installing
from common.files import read_text, real_path, replace_text
from observe.context import RunContext
from training.callback import Callback

if TYPE_CHECKING:
    from training.trainer import Trainer

PROJECT = "glassgpt"  # unless WANDB_PROJECT names another


def check_installed() -> None:
    """Raise UserError if wandb is not."""
    try:
        from wandb import init  # noqa: F401  # any folder named wandb could be imported, too
    except ImportError as error:
        raise UserError(
            f"observe.wandb: needs the library wandb; install it with {installing('wandb')}"
        ) from error


class Wandb(Callback):
    """Follows the event files of the writers that are made after it. Raises UserError if wandb
    cannot start a run."""

    def __init__(self, context: RunContext) -> None:
        import wandb

        run, id_file = real_path(context.folder), context.folder / "wandb_id"
        if not id_file.exists():
            replace_text(id_file, secrets.token_hex(4) + "\n")
        try:
            self.run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                group=run.parent.name if context.is_in_sweep else None,
                name=context.config.name or run.name,
                id=read_text(id_file).strip(),
                resume="allow",
                config=asdict(context.config),
                allow_val_change=True,
                sync_tensorboard=True,
            )
        except wandb.Error as error:
            raise UserError(
                f"observe.wandb: {error}; set WANDB_MODE=offline, or leave it out"
            ) from error

    def on_end(self, trainer: Trainer) -> None:
        self.run.finish(exit_code=int(trainer.summary is None))
