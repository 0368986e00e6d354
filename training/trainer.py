"""The training loop: forward, backward, clip, step. Callbacks do everything else.

The batch of a step is a pure function of (seed, step), and its dropout of these and the rank, so a
run that is stopped and resumed takes the same steps as one that is not. A step whose loss or
gradient is not finite changes no weight and no state of the optimizer. The loss, the norm of the
gradients and whether both are finite stay tensors on the device. A callback that reads one of them
waits for the device, and so does every step in float16, which adapts the scale of the loss.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from common.device import send
from data.batches import UNSCORED
from store.checkpoint import TrainState
from store.run import Summary
from training.callback import Callback
from training.config import TrainerConfig
from training.distributed import Ranks
from training.loss_scale import LossScaler
from training.optimizer import Optimizer
from training.precision import Precision, autocast, choose_precision, fast_precision

log = logging.getLogger("training")
log.addHandler(logging.NullHandler())  # until a run has a log file

# Maps the number of completed steps to the inputs and targets of the next step.
BatchOfStep = Callable[[int], tuple[Int[Tensor, "batch query"], Int[Tensor, "batch query"]]]

# Maps a model, the inputs and the targets of a part of a batch to the objective, summed over
# the targets that are scored: those that are not -100.
Loss = Callable[[nn.Module, Int[Tensor, "batch query"], Int[Tensor, "batch query"]], Tensor]


def next_token_loss(
    model: nn.Module, inputs: Int[Tensor, "batch query"], targets: Int[Tensor, "batch query"]
) -> Float[Tensor, ""]:
    """The sum over the scored targets of the cross-entropy, in nats."""
    return model(inputs, targets=targets, reduction="sum")


class Trainer:
    """Trains a model to `config.max_steps`.

    parallel: as `Ranks.wrap` returns it. With several ranks every rank has a trainer.
    seed: that of dropout.
    check: is called before each event of each callback, and raises if nothing may be written any
        more, such as into the folder of a run that was moved.
    loss: the objective: a sum over the scored targets of a part of the batch. The trainer
        divides it by their number in the whole batch, so that neither `grad_accumulation` nor the
        number of ranks changes more than rounding. With `config.compile`, it is compiled.
    precision: None: that of `config.precision`, where auto does not measure the CPU, and is fp32.
    """

    train_loss: Float[Tensor, ""]  # of the last step: of a scored target, over all ranks
    grad_norm: Float[Tensor, ""]  # before clipping
    is_finite: Bool[Tensor, ""]  # both are; otherwise the step changed nothing
    lr: float
    targets: Int[Tensor, "batch query"]  # of the whole batch

    def __init__(
        self,
        config: TrainerConfig,
        parallel: nn.Module,
        optimizer: Optimizer,
        batches: BatchOfStep,
        state: TrainState,
        seed: int,
        ranks: Ranks | None = None,
        callbacks: Sequence[Callback] = (),
        loss: Loss = next_token_loss,
        precision: Precision | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.config, self.optimizer, self.batches = config, optimizer, batches
        self.state, self.seed, self.ranks = state, seed, ranks or Ranks()
        self.callbacks, self.parallel, self.check = list(callbacks), parallel, check
        self.model: nn.Module = getattr(parallel, "module", parallel)  # without DDP
        self.loss = torch.compile(loss) if config.compile else loss
        device = self.ranks.device
        fast = precision or choose_precision(config.precision, fast_precision(device))
        self.precision, self.autocast = fast, autocast(device, fast.dtype)
        self.scaler = LossScaler(state, self.precision.dtype)
        self.stop_signal = 0  # a number ends the loop after the step
        self.checkpoint_pending = False  # one is due, or was requested by a signal
        self.seconds_paused = 0.0  # in evaluations
        self.summary: Summary | None = None  # set by `Evaluation.on_finish`

    def fit(self) -> Summary | None:
        """Train from the current state to `max_steps`; return the `summary`, which is None after a
        signal to stop. Raises what the first callback, or `check`, raised."""
        first, last = self.state.step, self.config.max_steps
        how = f"{self.ranks.device} in {self.precision.name} ({self.precision.reason})"
        log.info("training on %s, from step %d to %d", how, first, last)
        try:
            self.call("on_start")
            while self.state.step < self.config.max_steps and not self.stop_signal:
                self.step(*self.batches(self.state.step))
                self.call("on_step")
            self.call("on_stop" if self.stop_signal else "on_finish")
        except BaseException:
            self.summary = None
            with suppress(Exception):
                self._end()
            raise
        self._end()
        return self.summary

    def _end(self) -> None:
        """Call `on_end` of all callbacks, also after one, or `check`, has raised; then raise that.
        The others find no summary."""
        errors = []
        for callback in self.callbacks:
            for part in (self.check, partial(callback.on_end, self)):
                try:
                    part()
                except Exception as error:
                    self.summary = None
                    errors.append(error)
        if errors:
            raise errors[0]

    def step(self, inputs: Int[Tensor, "batch query"], targets: Int[Tensor, "batch query"]) -> None:
        """One optimizer step over one batch, of which each rank takes its share."""
        config, state, ranks = self.config, self.state, self.ranks
        torch.manual_seed(_mix(self.seed, state.step + 1, ranks.rank))
        self.optimizer.zero_grad()  # those of the last step, which callbacks have read
        shares = [ranks.shard_batch(tensor) for tensor in (inputs, targets)]
        micro_batches = [
            send(share, ranks.device).chunk(config.grad_accumulation) for share in shares
        ]

        # Of the whole batch, so that each target counts the same, wherever it is. Gradients are
        # averaged over ranks, so that each has its share of the count.
        count = (targets != UNSCORED).sum() / ranks.world_size  # on the host
        total = torch.zeros((), device=ranks.device)
        for i, (x, y) in enumerate(zip(*micro_batches, strict=True), 1):
            is_last = i == config.grad_accumulation
            with ranks.gradient_sync(self.parallel, is_last), self.autocast:
                loss = self.loss(self.parallel, x, y) / count
            self.scaler.scale(loss).backward()
            total += loss.detach()
        # From here on, `state.step` is the number of this step, which counts from 1.
        state.step, state.tokens = state.step + 1, state.tokens + targets.numel()
        self.targets = targets
        self.scaler.unscale(self.model.parameters())
        foreach = True if ranks.device.type == "cpu" else None  # faster than the default there
        self.grad_norm = nn.utils.clip_grad_norm_(
            self.model.parameters(), config.max_grad_norm, foreach=foreach
        )
        self.train_loss = ranks.mean(total)
        self.is_finite = (self.train_loss + self.grad_norm).isfinite()
        self.lr = self.optimizer.step(state.step, self.is_finite)
        self.scaler.update(self.is_finite)

    def call(self, event: str, *details: object) -> None:
        """Call the method `event` of all callbacks, each after `check`."""
        for callback in self.callbacks:
            self.check()
            getattr(callback, event)(self, *details)

    def is_due(self, every: int) -> bool:
        """Whether something that is done every so many steps (0: only at the end) is to be done."""
        at_end = self.state.step == self.config.max_steps
        return at_end or (every > 0 and self.state.step % every == 0)


def _mix(*numbers: int) -> int:
    """A well-spread 64-bit seed for every tuple of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
