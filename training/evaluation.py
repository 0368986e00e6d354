"""What is measured of a run: its steps, and the loss over batches of tokens, each target counted
once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor, nn

from data.batches import UNSCORED, EvalBatches
from model import eval_mode
from store.run import Summary
from training.callback import Callback, EvalMetrics, StepMetrics
from training.guard import diverged
from training.precision import autocast, evaluation_dtype
from training.trainer import Trainer

log = logging.getLogger("training")


class Metrics(Callback):
    """Counts the seconds of training, without evaluations, and measures every `log_every` steps.

    token_bytes: the number of bytes of each token.
    """

    def __init__(self, token_bytes: Int[Tensor, " vocab"]) -> None:
        self.token_bytes = token_bytes

    def on_start(self, trainer: Trainer) -> None:
        now = time.perf_counter() - trainer.seconds_paused
        self.began = now - trainer.state.seconds
        self.measured_at, self.tokens = now, trainer.state.tokens

    def on_step(self, trainer: Trainer) -> None:
        state = trainer.state
        is_due = trainer.is_due(trainer.config.log_every) and not state.bad_in_a_row
        # A number that is read is one that the device has computed.
        measured = (trainer.train_loss, trainer.grad_norm)
        loss, grad_norm = (x.item() if is_due else 0.0 for x in measured)
        now = time.perf_counter() - trainer.seconds_paused
        state.seconds = now - self.began
        if not is_due:
            return
        rate = (state.tokens - self.tokens) / (now - self.measured_at)
        self.measured_at, self.tokens = now, state.tokens
        scored = trainer.targets[trainer.targets != UNSCORED]
        n_bytes = int(self.token_bytes[scored].sum())
        bpb = loss * scored.numel() / math.log(2) / max(n_bytes, 1)  # of end tokens only
        metrics = StepMetrics(loss, bpb, trainer.lr, grad_norm, state.tokens, rate)
        trainer.call("on_metrics", metrics)


@dataclass(frozen=True)
class Measurement:
    """Sums over targets: the loss in `nats`, the number of `tokens` and of their `bytes`, and their
    information in `bits`, if it is known."""

    nats: float
    tokens: int
    bytes: int
    bits: float | None = None

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens

    @property
    def bpb(self) -> float:
        """Bits per byte, which unlike the loss per token does not depend on the tokenizer."""
        return self.nats / math.log(2) / max(self.bytes, 1)  # an end token has none

    @property
    def floor_bpb(self) -> float | None:
        """The bits per byte that no model can beat on these tokens."""
        return None if self.bits is None else self.bits / self.bytes


@torch.no_grad()
def measure(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    token_bytes: Int[Tensor, " vocab"],
    device: torch.device,
    autocast: AbstractContextManager,
    bits: float | None = None,
) -> Measurement:
    """The model's loss over the targets of `batches`, without dropout. Targets of -100 are not
    scored.

    `token_bytes` is the number of bytes of each token; `bits` the information of the targets, if it
    is known.
    """
    nats, tokens, n_bytes = 0.0, 0, 0
    with eval_mode(model):
        for inputs, targets in batches:
            with autocast:
                loss = model(inputs.to(device), targets=targets.to(device), reduction="sum")
            nats += loss.item()  # in float64: a long split has millions of terms
            scored = targets[targets != UNSCORED]
            tokens += scored.numel()
            n_bytes += int(token_bytes[scored].sum())
    return Measurement(nats, tokens, n_bytes, bits)


class Evaluation(Callback):
    """Measures the validation loss every `trainer.eval_every` steps and at the end, without dropout
    and, with `trainer.precision=auto` on a CPU, in float32.

    part: what the evaluations during training score; whole: what the last one scores.
    token_bytes: the number of bytes of each token.
    at_start: also before the first step: the initial weights are those of another run.

    Its time is not counted as training. A signal to stop ends it without a result.
    """

    def __init__(
        self,
        part: EvalBatches,
        whole: EvalBatches,
        token_bytes: Int[Tensor, " vocab"],
        at_start: bool = False,
    ) -> None:
        self.part, self.whole, self.token_bytes, self.at_start = part, whole, token_bytes, at_start
        self.measured: Measurement | None = None  # of `part`

    def on_start(self, trainer: Trainer) -> None:
        # A run can be stopped between a checkpoint and the evaluation at its step.
        self.on_step(trainer)

    def on_step(self, trainer: Trainer) -> None:
        state = trainer.state
        is_due = trainer.is_due(trainer.config.eval_every) and (state.step > 0 or self.at_start)
        if trainer.stop_signal or not is_due or state.evaluated == state.step:
            return
        measured = self._measure(trainer, self.part)
        if measured is None:
            return
        self.measured, best = measured, state.best_val_loss
        if best is not None and state.best_val_tokens != measured.tokens:
            log.info("evaluations score %d tokens from now on; the best is new", measured.tokens)
            best = None  # of other tokens
        log.info("step %d: validation loss %.4f, %.4f bpb", state.step, measured.loss, measured.bpb)
        state.evaluated = state.step
        if not state.bad_in_a_row and (best is None or measured.loss < best):
            state.best_val_loss, state.best_val_tokens = measured.loss, measured.tokens
            state.best_step = state.step
        metrics = EvalMetrics(measured.loss, measured.bpb, measured.tokens, measured.floor_bpb)
        trainer.call("on_eval", metrics)

    def on_finish(self, trainer: Trainer) -> None:
        """Evaluate `whole`, and give the trainer its summary."""
        part = self.measured or self._measure(trainer, self.part)
        final = part if self.whole is self.part else self._measure(trainer, self.whole)
        if part is None or final is None:
            return
        state = trainer.state
        best = state.best_val_loss
        if best is None or state.best_val_tokens != part.tokens:  # or of other tokens
            best = part.loss
        trainer.summary = Summary(
            val_loss=final.loss,
            val_bpb=final.bpb,
            val_tokens=final.tokens,
            best_val_loss=best,
            # Every evaluation during training scores the same tokens and bytes.
            best_val_bpb=replace(part, nats=best * part.tokens).bpb,
            best_val_tokens=part.tokens,
            steps=state.step,
            tokens=state.tokens,
            seconds=round(state.seconds, 3),
            tokens_per_second=round(state.tokens / max(state.seconds, 1e-9), 1),
            parameters=sum(parameter.numel() for parameter in trainer.model.parameters()),
            bad_steps=state.bad_steps,
            floor_bpb=final.floor_bpb,
        )
        log.info("finished: validation loss %.4f, %.4f bpb", final.loss, final.bpb)

    def _measure(self, trainer: Trainer, batches: EvalBatches) -> Measurement | None:
        """The loss over `batches`, shared among the ranks; None after a signal to stop."""
        ranks, began = trainer.ranks, time.perf_counter()
        dtype = evaluation_dtype(ranks.device, trainer.config.precision)
        mine, context = self._own_batches(trainer, batches), autocast(ranks.device, dtype)
        sums = measure(trainer.model, mine, self.token_bytes, ranks.device, context)
        trainer.seconds_paused += time.perf_counter() - began
        if trainer.stop_signal:
            return None
        nats, tokens, n_bytes = ranks.sum([sums.nats, sums.tokens, sums.bytes])
        if not math.isfinite(nats):
            raise diverged(trainer, f"the validation loss is {nats}")
        return Measurement(nats, int(tokens), int(n_bytes), batches.bits)

    def _own_batches(
        self, trainer: Trainer, batches: EvalBatches
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's batches, up to a signal to stop. All ranks report equally many: they look at
        the signals together."""
        ranks = trainer.ranks
        total = math.ceil(len(batches) / ranks.world_size)
        for done in range(1, total + 1):
            index = (done - 1) * ranks.world_size + ranks.rank
            if index < len(batches):
                yield batches.batch(index)
            trainer.call("on_eval_batch", done, total)
            if trainer.stop_signal:
                return
