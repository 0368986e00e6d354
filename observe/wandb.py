"""A run at Weights & Biases: the scalars, samples and images that TensorBoard has, and at the end
the page in which the model runs.

wandb's own settings apply. Its files are in wandb/ of the run's folder, unless WANDB_DIR names
another one; wandb_id holds the name by which a resume finds the run. A failure of wandb never ends
the training: without a connection at the start, everything is logged offline.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from common.errors import UserError, installing, print, printable, visible
from common.files import read_text, real_path, replace_text
from observe.attention import TAG, draw_maps, image_labels, probe_tokens
from observe.context import RunContext
from observe.heads import curves, maps_of
from observe.hparams import hyperparameters, result
from observe.live import page
from observe.measured import Measured
from observe.tensorboard import eval_scalars, step_scalars
from training.callback import Callback, EvalMetrics, StepMetrics

if TYPE_CHECKING:
    import wandb

    from training.trainer import Trainer

PROJECT = "glassgpt"  # unless wandb's settings name another
STEP = "global_step"
PATIENCE = 300.0  # seconds that the end of a run waits for uploads


def check_installed() -> None:
    """Raise UserError if wandb is not."""
    try:
        from wandb import init  # noqa: F401  # any folder named wandb could be imported, too
    except ImportError as error:
        raise UserError(
            f"observe.wandb: needs the library wandb; install it with {installing('wandb')}"
        ) from error


class Wandb(Callback):
    """Logs to a run of wandb, which a resume continues."""

    def __init__(self, context: RunContext, measured: Measured) -> None:
        self.measured = measured
        self.context, self.maps = context, context.config.observe.attention
        self.run: wandb.Run | None = None
        try:
            self.run = start(context)
            # wandb's own step only grows, but a resume repeats the steps after its checkpoint.
            self.run.define_metric(STEP, hidden=True)
            self.run.define_metric("*", step_metric=STEP)
        except Exception as error:
            self._give_up(error)

    def on_start(self, trainer: Trainer) -> None:
        if trainer.state.step == 0:
            self.on_step(trainer)

    def on_step(self, trainer: Trainer) -> None:
        step, last, maps = trainer.state.step, trainer.config.max_steps, self.maps
        if maps.reads_maps(step, last):
            with self.context.stopwatch:
                scores = self.measured.head_scores.measure(step, maps.has_importance(step, last))
                images = self._images() if maps.has_images(step, last) else {}
            self._log(step, curves(scores), images)

    def on_metrics(self, trainer: Trainer, metrics: StepMetrics) -> None:
        self._log(trainer.state.step, step_scalars(self.context, trainer, metrics))

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        step, texts = trainer.state.step, {}
        if self.context.logs_sample(step):
            text = escape("\n".join(map(visible, self.measured.sample(step).splitlines())))
            texts["sample"] = f'<pre style="white-space: pre-wrap">{text}</pre>'
        self._log(step, eval_scalars(self.measured, trainer, metrics), texts=texts)

    def on_end(self, trainer: Trainer) -> None:
        step, summary, texts = trainer.state.step, trainer.summary, {}
        if summary is not None:
            with suppress(UserError):  # weights that float16 cannot hold
                texts = {"page": page(self.context, step)} if self.context.has_page else {}
            self._log(step, result(summary), texts=texts)
        if self.run is not None:
            try:
                self.run.finish(exit_code=int(summary is None))
            except Exception as error:
                self._give_up(error)

    def _images(self) -> dict[str, np.ndarray]:
        tokens, tokenizer = probe_tokens(self.maps, self.context), self.context.dataset.tokenizer
        labels = image_labels([tokenizer.decode_bytes([token]) for token in tokens])
        maps = maps_of(self.context.model, torch.tensor([tokens]))
        return dict(draw_maps(TAG, labels, maps))

    def _log(
        self,
        step: int,
        scalars: Mapping[str, float],
        images: Mapping[str, np.ndarray] | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Log values of one step, and texts that are HTML."""
        if self.run is None:
            return
        import wandb

        try:
            values: dict[str, object] = {STEP: step, **scalars}
            values |= {tag: wandb.Image(image) for tag, image in (images or {}).items()}
            for tag, text in (texts or {}).items():
                values[tag] = wandb.Html(text, inject=False, data_is_not_path=True)
            # A step that is repeated has rows of its own, since wandb drops those of earlier steps.
            self.run.log(values, step=step if step >= self.run.step else None)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.run = None
        warn(f"nothing more is logged ({error}); the training goes on")


def start(context: RunContext) -> wandb.Run:
    """A new run of wandb, or that which this run has had. Without a connection, an offline one."""
    import wandb

    given = wandb.setup().settings
    run, id_file = real_path(context.folder), context.folder / "wandb_id"
    if not id_file.exists():
        replace_text(id_file, secrets.token_hex(4) + "\n")

    def init(mode: Literal["offline"] | None) -> wandb.Run:
        return wandb.init(
            mode=mode,
            dir=os.environ.get("WANDB_DIR", run),
            project=given.project or PROJECT,
            group=given.run_group or (run.parent.name if context.is_in_sweep else None),
            name=given.run_name or context.config.name or run.name,
            id=given.run_id or read_text(id_file).strip(),
            resume=given.resume or "allow",
            config=hyperparameters(context),
            allow_val_change=True,
            settings={"symlink": False, "finish_timeout": given.finish_timeout or PATIENCE},
        )

    try:
        return init(None)
    except Exception as error:
        warn(f"cannot start ({error}); logging offline, to be uploaded with wandb sync")
        wandb.teardown()  # which otherwise still holds the name of the run
        return init("offline")
    finally:
        # A run has no links: Run.open refuses them. This one leads to a log of all runs.
        for link in (run / "wandb").glob("*/logs/debug-core.log"):
            link.unlink()


def warn(what: str) -> None:
    print(printable(f"warning: observe.wandb: {what}"), file=sys.stderr)
