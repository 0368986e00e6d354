"""The training loop. It knows nothing of screens, file formats or the meaning of tokens.

The batch of step s and its dropout are pure functions of (seed, s), so a run that is stopped and
resumed takes the same steps as one that is not. A step whose loss or gradient is not finite is
skipped, so that it never reaches a checkpoint.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from errors import UserError
from training.checkpoint import Checkpoints, Progress
from training.config import TrainerConfig
from training.device import autocast
from training.evaluation import Measurement, cross_entropy, largest_activations, measure
from training.observer import EvalMetrics, Observer, StepMetrics, Summary
from training.optimizer import Optimizer
from training.ranks import Ranks, full_tensor
from training.signals import SignalMonitor, Stopped

log = logging.getLogger("training")
log.addHandler(logging.NullHandler())  # until a run has a log file

Batch = tuple[Tensor, Tensor]


class Diverged(UserError):  # noqa: N818
    """The loss, the gradients or the weights of a run are no longer finite."""


@dataclass(frozen=True)
class TrainingData:
    """What a model is trained and validated on.

    seed: the seed of dropout.
    batch: maps the number of completed steps to the inputs and targets of the next step.
    validation: returns an iterator over the batches of the validation split.
    token_bytes: the number of bytes of each token.
    """

    seed: int
    batch: Callable[[int], Batch]
    validation: Callable[[], Iterable[Batch]]
    token_bytes: Int[Tensor, " vocab"]


@dataclass(frozen=True)
class Reports:
    """Where a trainer saves its checkpoints, and the observers that it reports to."""

    checkpoints: Checkpoints
    observers: Sequence[Observer] = ()

    def send(self, event: str, step: int, *details: object) -> None:
        """Call the method `event` of all observers."""
        for observer in self.observers:
            getattr(observer, event)(step, *details)


class Clock:
    """Wall-clock time in the loop, and the rate of training tokens without evaluations."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.start()

    def start(self) -> None:
        now = time.perf_counter()
        self._began, self._tick = now - self.progress.seconds, now
        self._tokens = self.progress.tokens

    def stop(self) -> None:
        """Add the time since `start` to the progress."""
        self.progress.seconds = time.perf_counter() - self._began

    def skip(self, seconds: float) -> None:
        """Exclude some seconds from the next rate."""
        self._tick += seconds

    def rate(self) -> float:
        """Tokens per second since the previous call."""
        now, tokens = time.perf_counter(), self.progress.tokens
        rate = (tokens - self._tokens) / (now - self._tick)
        self._tick, self._tokens = now, tokens
        return rate


class Trainer:
    """Trains a model step by step and reports to observers.

    model: as `Ranks.parallelize` returns it. With several ranks every rank has a trainer, and only
        that of the main process has observers.
    """

    def __init__(
        self,
        config: TrainerConfig,
        model: nn.Module,
        optimizer: Optimizer,
        data: TrainingData,
        reports: Reports,
        progress: Progress | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.config, self.optimizer, self.data, self.reports = config, optimizer, data, reports
        self.progress, self.ranks = progress or Progress(), ranks or Ranks()
        self.forward = model
        # DDP is called through its wrapper; the wrapped model is saved and evaluated.
        self.model: nn.Module = getattr(model, "module", model)
        self.token_bytes = data.token_bytes.to(self.ranks.device)
        self.autocast = autocast(self.ranks.device, config.precision)
        self.loss = torch.compile(self._loss) if config.compile else self._loss
        self.signals = SignalMonitor()
        self.clock = Clock(self.progress)
        self.pending: set[str] = set()  # checkpoints that wait while steps are skipped

    def fit(self) -> Summary:
        """Train from the current progress to `max_steps`; return the result.

        Raises Stopped after a signal to stop, and Diverged if loss or gradients stay non-finite.
        """
        with self.signals:
            return self._fit()

    def _fit(self) -> Summary:
        config, progress, summary, measured = self.config, self.progress, None, None
        device = self.ranks.device
        log.info("training on %s from step %d to %d", device, progress.step, config.max_steps)
        self.reports.send("on_start", progress.step)
        self.clock.start()
        try:
            while progress.step < config.max_steps:
                metrics = self.train_step()
                self.clock.stop()
                self.reports.send("on_step", progress.step, metrics)
                if self._is_due(config.eval_every):
                    measured = self.evaluate()
                self._save_and_stop_if_asked()
            # If no step was taken, only the summary was missing: evaluate for it.
            summary = self._summary(measured or self._measure())
        finally:
            self.reports.send("on_end", progress.step, summary)
        log.info("finished: validation loss %.4f, %.4f bpb", summary.val_loss, summary.val_bpb)
        return summary

    def train_step(self) -> StepMetrics | None:
        """One optimizer step over one batch, measured every `log_every` steps."""
        config, progress, ranks = self.config, self.progress, self.ranks
        step = progress.step + 1
        inputs, targets = (part.to(ranks.device) for part in self.data.batch(progress.step))
        torch.manual_seed(_mix(self.data.seed, step, ranks.rank))

        total = torch.zeros((), device=ranks.device)
        shards = (
            ranks.shard_batch(each).chunk(config.grad_accumulation) for each in (inputs, targets)
        )
        for x, y in zip(*shards, strict=True):
            part_loss = self.loss(x, y) / config.grad_accumulation
            part_loss.backward()
            total += part_loss.detach()
        parameters = list(self.model.parameters())
        norm = nn.utils.get_total_norm([each.grad for each in parameters if each.grad is not None])
        total = ranks.all_reduce_sum(total) / ranks.world_size
        # One transfer for both: each transfer waits for the GPU.
        loss, grad_norm = torch.stack([total, full_tensor(norm)]).tolist()

        progress.step, progress.tokens = step, progress.tokens + targets.numel()
        if not math.isfinite(loss + grad_norm):
            self._skip_step(loss, grad_norm)
            return None
        progress.bad_in_a_row = 0
        if grad_norm > config.max_grad_norm:
            nn.utils.clip_grads_with_norm_(parameters, config.max_grad_norm, norm)
        self.reports.send("on_gradients", step)
        lr = self.optimizer.step(step)

        if not self._is_due(config.log_every):
            return None
        bpb = loss * targets.numel() / math.log(2) / int(self.token_bytes[targets].sum())
        return StepMetrics(loss, bpb, lr, grad_norm, progress.tokens, self.clock.rate())

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        """One function, so that a compiler can avoid writing the float32 logits to memory."""
        with self.autocast:
            logits = self.forward(x)
        return cross_entropy(logits, y)

    def evaluate(self) -> Measurement:
        """Measure the loss over the whole validation split, and report it."""
        began, step, best = time.perf_counter(), self.progress.step, self.progress.best_val_loss
        measured = self._measure()
        if not math.isfinite(measured.loss):
            raise self._diverged(f"the validation loss is {measured.loss}")
        self.clock.skip(time.perf_counter() - began)
        log.info("step %d: validation loss %.4f, %.4f bpb", step, measured.loss, measured.bpb)
        self.reports.send("on_eval", step, EvalMetrics(measured.loss, measured.bpb))
        if best is None or measured.loss < best:
            self.pending.add("best")
            self.progress.best_val_loss = measured.loss
        self.clock.stop()
        return measured

    def _measure(self) -> Measurement:
        ranks = self.ranks
        # Under fsdp all ranks must call the model equally often: each evaluates the whole split.
        share = ranks.world_size if self.config.parallel == "ddp" else 1
        batches = islice(self.data.validation(), ranks.rank % share, None, share)
        measured = measure(self.model, batches, self.token_bytes, ranks.device, self.autocast)
        if share > 1:
            sums = [measured.nats, measured.tokens, measured.bytes]
            totals = torch.tensor(sums, dtype=torch.float64, device=ranks.device)
            nats, tokens, n_bytes = ranks.all_reduce_sum(totals).tolist()
            measured = Measurement(nats, int(tokens), int(n_bytes))
        return measured

    def _save_and_stop_if_asked(self) -> None:
        """Write the checkpoint that is due or requested; raise Stopped if a signal asks to stop."""
        progress, ranks = self.progress, self.ranks
        stop, save = self.signals.stop, int(self.signals.save)
        self.signals.save = False
        if ranks.world_size > 1:  # any rank may receive the signal
            stop, save = ranks.all_reduce_max(
                torch.tensor([stop, save], device=ranks.device)
            ).tolist()
        if stop or save or self._is_due(self.config.checkpoint_every):
            self.pending.add("last")
        is_end = bool(stop) or progress.step == self.config.max_steps
        if self.pending and progress.bad_in_a_row and not is_end:
            log.warning(
                "step %d: checkpoint postponed, because the step was skipped", progress.step
            )
        elif self.pending:
            self._save()
        if stop and progress.step < self.config.max_steps:
            raise Stopped(progress.step, stop)

    def _save(self) -> None:
        for name, parameter in self.model.named_parameters():
            if not parameter.isfinite().all():
                raise self._diverged(f"{name} has values that are not finite")
        path = self.reports.checkpoints.save(
            self.model,
            self.optimizer,
            self.progress,
            is_best="best" in self.pending,
            keep=self.config.keep_checkpoints,
            writes=self.ranks.is_main,
        )
        self.pending.clear()
        self.reports.send("on_checkpoint", self.progress.step, path)

    def _skip_step(self, loss: float, grad_norm: float) -> None:
        """Discard gradients that are not finite; raise Diverged after too many steps in a row."""
        progress = self.progress
        self.optimizer.zero_grad()
        progress.bad_steps += 1
        progress.bad_in_a_row += 1
        reason = f"loss {loss}, gradient norm {grad_norm}"
        log.warning("step %d skipped: %s", progress.step, reason)
        if progress.bad_in_a_row >= self.config.max_bad_steps:
            raise self._diverged(f"{reason}, for {progress.bad_in_a_row} consecutive steps")

    def _diverged(self, reason: str) -> Diverged:
        """The exception to raise; logs the batch of the last step and the model's activations."""
        step = self.progress.step
        inputs, _ = self.data.batch(step - 1)
        shard = self.ranks.shard_batch(inputs).to(self.ranks.device)
        largest = largest_activations(self.model, shard, self.autocast)
        log.error("diverged at step %d: %s", step, reason)
        log.error("largest activations: %s", largest)
        log.error("batch: %s", inputs.tolist())
        listed = ", ".join(f"{name} {value:.3g}" for name, value in largest.items())
        return Diverged(
            f"optimizer.lr: training diverged at step {step}: {reason}. Largest activations of its "
            f"batch: {listed}. The batch is in train.log; saved checkpoints are finite. "
            "Lower optimizer.lr, raise optimizer.warmup_steps or lower trainer.max_grad_norm"
        )

    def _is_due(self, every: int) -> bool:
        at_end = self.progress.step == self.config.max_steps
        return at_end or (every > 0 and self.progress.step % every == 0)

    def _summary(self, measured: Measurement) -> Summary:
        progress, best = self.progress, self.progress.best_val_loss
        best = measured.loss if best is None else best  # there was no evaluation
        return Summary(
            val_loss=measured.loss,
            val_bpb=measured.bpb,
            best_val_loss=best,
            # Every evaluation scores the same tokens and bytes.
            best_val_bpb=measured.bpb * best / measured.loss,
            steps=progress.step,
            tokens=progress.tokens,
            seconds=round(progress.seconds, 3),
            tokens_per_second=round(progress.tokens / progress.seconds, 1),
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            bad_steps=progress.bad_steps,
        )


def _mix(*numbers: int) -> int:
    """A well-spread 64-bit seed for every tuple of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
