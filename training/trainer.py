"""The training loop. It knows nothing of screens, file formats or the meaning of tokens.

The batch of step s and its dropout are pure functions of (seed, s), so a run that is stopped and
resumed takes the same steps as one that is not. A step whose loss or gradient is not finite is
skipped, so that it never reaches a checkpoint.

On a GPU, the host queues one step after the other, and waits for results only where they are
needed: for a step that is measured or observed, before a checkpoint or an evaluation, and often
enough to stop after `max_bad_steps`. The GPU itself decides which steps are skipped.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from data.batches import Windows
from errors import UserError
from model import full_tensor
from training.checkpoint import Checkpoints
from training.clock import Clock
from training.config import TrainerConfig
from training.device import autocast
from training.evaluation import Measurement, largest_activations, measure
from training.feed import Batch, Feed
from training.observer import EvalMetrics, Observer, StepMetrics, Summary
from training.optimizer import Optimizer
from training.progress import Progress
from training.ranks import Ranks
from training.results import Results
from training.signals import SignalMonitor, Stopped

log = logging.getLogger("training")
log.addHandler(logging.NullHandler())  # until a run has a log file


class Diverged(UserError):  # noqa: N818
    """The loss, the gradients or the weights of a run are no longer finite."""


@dataclass(frozen=True)
class TrainingData:
    """What a model is trained and validated on.

    seed: the seed of dropout.
    batch: maps the number of completed steps to the inputs and targets of the next step.
    validation: what the evaluations during training score; final_validation: what the last one
        scores.
    token_bytes: the number of bytes of each token.
    """

    seed: int
    batch: Callable[[int], Batch]
    validation: Windows
    final_validation: Windows
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


class Trainer:
    """Trains a model step by step and reports to observers.

    model: as `Ranks.parallelize` returns it. With several ranks every rank has a trainer. All but
        that of the main process have only the observers that look at a sharded model.
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
        self.autocast = autocast(self.ranks.device, config.precision, self.model)
        self.exact = autocast(self.ranks.device, config.precision)  # for evaluations
        self.loss = torch.compile(self._loss) if config.compile else self._loss
        self.feed = Feed(data.batch, self.ranks.device)
        self.runs_ahead = self.ranks.device.type == "cuda"  # a CPU has nothing to wait for
        self.results = Results(self.progress, config.max_bad_steps)
        self.signals = SignalMonitor()
        self.clock = Clock(self.progress)
        self.save_pending = False  # a checkpoint waits while steps are skipped
        self.saved_step = self.progress.step  # of the newest checkpoint
        self.saving: Future[Path] | None = None  # one that is being written
        self.measured: Measurement | None = None

    def fit(self) -> Summary:
        """Train from the current progress to `max_steps`; return the result.

        Raises Stopped after a signal to stop, and Diverged if loss or gradients stay non-finite.
        """
        with self.signals:
            return self._fit()

    def _fit(self) -> Summary:
        config, progress, summary = self.config, self.progress, None
        device = self.ranks.device
        log.info("training on %s from step %d to %d", device, progress.step, config.max_steps)
        self.reports.send("on_start", progress.step)
        self.clock.start()
        try:
            if progress.evaluated is None and progress.step == 0:
                self._save()  # the run that the weights come from may be deleted or trained further
            # A run can be stopped between a checkpoint and the evaluation at its step.
            self._evaluate_if_due()
            while progress.step < config.max_steps:
                metrics = self.train_step()
                self.clock.stop()
                self.reports.send("on_step", progress.step, metrics)
                self._save_or_stop()
                self._evaluate_if_due()
            summary = self._summary()
        finally:
            try:
                self._finish_save()
            finally:
                self.reports.send("on_end", progress.step, summary)
        log.info("finished: validation loss %.4f, %.4f bpb", summary.val_loss, summary.val_bpb)
        return summary

    def train_step(self) -> StepMetrics | None:
        """One optimizer step over one batch, measured every `log_every` steps."""
        config, progress, ranks = self.config, self.progress, self.ranks
        step = progress.step + 1
        inputs, targets = self.feed(progress.step)
        torch.manual_seed(_mix(self.data.seed, step, ranks.rank))

        total = torch.zeros((), device=ranks.device)
        shards = (
            ranks.shard_batch(each).chunk(config.grad_accumulation) for each in (inputs, targets)
        )
        for x, y in zip(*shards, strict=True):
            part_loss = self.loss(x, y) / config.grad_accumulation
            part_loss.backward()
            total += part_loss.detach()
        total = ranks.all_reduce_sum(total) / ranks.world_size
        progress.step, progress.tokens = step, progress.tokens + targets.numel()
        lr = self._update(total)

        if not self._is_due(config.log_every) or progress.bad_in_a_row:
            return None
        loss, grad_norm = self.results.loss, self.results.grad_norm
        bpb = loss * targets.numel() / math.log(2) / int(self.token_bytes[targets].sum())
        return StepMetrics(loss, bpb, lr, grad_norm, progress.tokens, self.clock.rate())

    def _update(self, loss: Float[Tensor, ""]) -> float:
        """Clip the gradients and take the optimizer's step, or skip it if a number in it is not
        finite; returns the learning rate.

        On a CPU the host reads the numbers first. A GPU decides itself; before the host waits for
        it, the next batch is read and its copy is queued.
        """
        config, step = self.config, self.progress.step
        parameters = list(self.model.parameters())
        norm = nn.utils.get_total_norm([each.grad for each in parameters if each.grad is not None])
        result, is_finite = torch.stack([loss, full_tensor(norm)]), None
        self.results.add(result)
        if self.runs_ahead:
            is_finite = result.isfinite().all()
        elif self._skipped():
            self.optimizer.zero_grad()
            return math.nan
        if self.runs_ahead or self.results.grad_norm > config.max_grad_norm:
            nn.utils.clip_grads_with_norm_(parameters, config.max_grad_norm, norm)
        if any(each.wants_gradients(step) for each in self.reports.observers):
            self.results.read()
            if not self.progress.bad_in_a_row:
                self.reports.send("on_gradients", step)
        lr = self.optimizer.step(step, is_finite)
        if self.runs_ahead and step < config.max_steps:
            self.feed.prepare(step)
        if self._is_due(config.log_every) or self.results.are_due:
            self._skipped()
        return lr

    def _skipped(self) -> bool:
        """Wait for the results of all steps. Whether this one is skipped; raises Diverged if too
        many were."""
        self.results.read()
        if self.results.are_too_bad:
            n = self.progress.bad_in_a_row
            steps = "1 step" if n == 1 else f"{n} consecutive steps"
            raise self._diverged(f"{self.results.newest}, for {steps}")
        return self.progress.bad_in_a_row > 0

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss, as one function that can be compiled."""
        with self.autocast:
            return self.forward(x, targets=y)

    def _evaluate_if_due(self) -> None:
        if self.progress.evaluated != self.progress.step and self._is_due(self.config.eval_every):
            self.results.read()  # before the pause: steps that a GPU still works on are training
            with self.clock.pause():
                self.evaluate()

    def evaluate(self) -> None:
        """Measure the validation loss, report it, and point `best` to the lowest so far."""
        progress, checkpoints = self.progress, self.reports.checkpoints
        step, best = progress.step, progress.best_val_loss
        self.measured = measured = self._measure(self.data.validation)
        if best is not None and progress.best_val_tokens not in (None, measured.tokens):
            log.info("evaluations score %d tokens from now on; the best is new", measured.tokens)
            best = None  # of other tokens
        log.info("step %d: validation loss %.4f, %.4f bpb", step, measured.loss, measured.bpb)
        metrics = EvalMetrics(measured.loss, measured.bpb, measured.tokens, measured.floor_bpb)
        self.reports.send("on_eval", step, metrics)
        progress.evaluated = step
        # A skipped step has no checkpoint.
        is_best = not progress.bad_in_a_row and (best is None or measured.loss < best)
        if is_best:
            progress.best_val_loss, progress.best_val_tokens = measured.loss, measured.tokens
        if self.saved_step != step:
            if is_best:
                self._save(is_best)
        else:
            self._finish_save()
            if self.ranks.is_main:
                keep = self.config.keep_checkpoints
                checkpoints.add_evaluation(progress, is_best=is_best, keep=keep)

    def _measure(self, batches: Windows) -> Measurement:
        ranks = self.ranks
        # Under fsdp all ranks must call the model equally often: each evaluates all batches.
        share = ranks.world_size if self.config.parallel == "ddp" else 1
        mine = self._watched(batches, share)
        measured = measure(self.model, mine, self.token_bytes, ranks.device, self.exact)
        if share > 1:
            sums = [measured.nats, measured.tokens, measured.bytes]
            totals = torch.tensor(sums, dtype=torch.float64)
            nats, tokens, n_bytes = ranks.all_reduce_sum(totals).tolist()
            measured = Measurement(nats, int(tokens), int(n_bytes))
        measured = replace(measured, bits=batches.bits)
        if not math.isfinite(measured.nats):
            raise self._diverged(f"the validation loss is {measured.nats}")
        return measured

    def _watched(self, batches: Windows, share: int) -> Iterator[Batch]:
        """This rank's batches, with a look at the signals after each. Every rank takes as many
        looks: they communicate."""
        everything, total = iter(batches), math.ceil(len(batches) / share)
        for done in range(1, total + 1):
            group = list(islice(everything, share))
            yield from group[self.ranks.rank % share :][:1]
            self.reports.send("on_eval_batch", self.progress.step, done, total)
            if stop := self._poll():
                if self.saved_step != self.progress.step:
                    self._save()
                raise Stopped(self.progress.step, stop)

    def _poll(self) -> int:
        """The signal that asks to stop, or 0; notes a request for a checkpoint, and the end of one
        that is being written."""
        stop, save = self.signals.stop, int(self.signals.save)
        self.signals.save = False
        done = self.saving is not None and self.saving.done()
        failed = int(done and self.saving is not None and self.saving.exception() is not None)
        if self.ranks.world_size > 1:  # any rank may receive the signal, or fail
            asked = self.ranks.all_reduce_max(torch.tensor([stop, save, failed]))
            stop, save, failed = asked.tolist()
        if done or failed:
            self._finish_save()
        self.save_pending |= bool(save)
        return stop

    def _save_or_stop(self) -> None:
        """Write the checkpoint that is due or requested; raise Stopped if a signal asks to stop."""
        progress, stop = self.progress, self._poll()
        self.save_pending |= bool(stop) or self._is_due(self.config.checkpoint_every)
        is_end = bool(stop) or progress.step == self.config.max_steps
        if self.save_pending:
            self.results.read()
        if self.save_pending and progress.bad_in_a_row and not is_end:
            log.warning(
                "step %d: checkpoint postponed, because the step was skipped", progress.step
            )
        elif self.save_pending:
            self._save()
        if stop:
            raise Stopped(progress.step, stop)

    def _save(self, is_best: bool = False) -> None:
        """Write a checkpoint, or begin to; the one that is being written is completed first."""
        self._finish_save()
        for name, parameter in self.model.named_parameters():
            if not parameter.isfinite().all():
                raise self._diverged(f"{name} has values that are not finite")
        self.saving = self.reports.checkpoints.save(
            self.model,
            self.optimizer,
            self.progress,
            is_best=is_best,
            keep=self.config.keep_checkpoints,
            writes=self.ranks.is_main,
            in_background=self.config.async_checkpoint,
        )
        self.save_pending, self.saved_step = False, self.progress.step
        if not self.config.async_checkpoint:
            self._finish_save()

    def _finish_save(self) -> None:
        """Wait until the checkpoint that is being written is complete, and report it."""
        if self.saving is not None:
            saving, self.saving = self.saving, None
            path = saving.result()
            self.reports.send("on_checkpoint", self.saved_step, path)

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

    def _summary(self) -> Summary:
        """The result of the run, from an evaluation of `final_validation`."""
        data, progress = self.data, self.progress
        with self.clock.pause():
            part = self.measured or self._measure(data.validation)
            is_same = data.final_validation is data.validation
            final = part if is_same else self._measure(data.final_validation)
        best = part.loss if progress.best_val_loss is None else progress.best_val_loss
        return Summary(
            val_loss=final.loss,
            val_bpb=final.bpb,
            val_tokens=final.tokens,
            best_val_loss=best,
            # Every evaluation during training scores the same tokens and bytes.
            best_val_bpb=part.bpb * best / part.loss,
            best_val_tokens=part.tokens,
            steps=progress.step,
            tokens=progress.tokens,
            seconds=round(progress.seconds, 3),
            tokens_per_second=round(progress.tokens / max(progress.seconds, 1e-9), 1),
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            bad_steps=progress.bad_steps,
            floor_bpb=final.floor_bpb,
        )


def _mix(*numbers: int) -> int:
    """A well-spread 64-bit seed for every tuple of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
