"""When a run is saved: the callback that writes its checkpoints."""

from __future__ import annotations

import logging

from store.checkpoint import Checkpoints, TensorFiles
from store.weights import MODEL, OPTIMIZER
from training.callback import Callback, EvalMetrics
from training.config import TrainerConfig
from training.guard import diverged
from training.trainer import Trainer

log = logging.getLogger("training")


class Checkpointing(Callback):
    """Saves every `trainer.checkpoint_every` steps, at the end, on request, where the run stops,
    and where an evaluation is the best so far. After a step that was skipped, the checkpoint waits
    for the next one that is not, or for the end.

    at_start: also before the first step: a finetuned run saves the weights of another one, which
        may be deleted or trained on.
    """

    def __init__(self, checkpoints: Checkpoints, at_start: bool = False) -> None:
        self.checkpoints, self.at_start = checkpoints, at_start

    def on_start(self, trainer: Trainer) -> None:
        self.saved_step = trainer.state.step
        if self.at_start and trainer.state.step == 0:
            self._save(trainer)

    def on_step(self, trainer: Trainer) -> None:
        state, config = trainer.state, trainer.config
        trainer.checkpoint_pending |= trainer.is_due(config.checkpoint_every)
        if not trainer.checkpoint_pending or trainer.stop_signal:
            return
        trainer.call("on_before_checkpoint")
        if state.bad_in_a_row and state.step < config.max_steps:
            log.warning("step %d: checkpoint postponed, because the step was skipped", state.step)
        else:
            self._save(trainer)

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        state = trainer.state
        if self.saved_step != state.step and state.best_step == state.step:
            self._save(trainer)
        elif self.saved_step == state.step and trainer.ranks.is_main:
            is_added = self.checkpoints.add_evaluation(state, *kept(trainer.config))
            if not is_added:
                self._save(trainer)

    def on_stop(self, trainer: Trainer) -> None:
        if self.saved_step != trainer.state.step:
            trainer.call("on_before_checkpoint")
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        for name, parameter in trainer.model.named_parameters():
            if not parameter.isfinite().all():
                raise diverged(trainer, f"{name} has values that are not finite")
        self.saved_step, trainer.checkpoint_pending = trainer.state.step, False
        if trainer.ranks.is_main:
            tensors: TensorFiles = {
                MODEL: dict(trainer.model.named_parameters()),
                OPTIMIZER: trainer.optimizer.state_tensors(),
            }
            path = self.checkpoints.save(tensors, trainer.state, *kept(trainer.config))
            trainer.call("on_checkpoint", path)


def kept(config: TrainerConfig) -> tuple[int, int]:
    """How many checkpoints are kept, and of which steps: the multiples of this number."""
    return config.keep_checkpoints, config.checkpoint_every or 1
