"""The training loop. It knows no screen, no file format and nothing of what the tokens mean.

The batch of step s and its dropout are pure functions of (seed, s), so a run that is cut and
resumed takes the same steps as one that is not. A step whose loss or gradient is not finite is left
out, so that no checkpoint ever holds what came of it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
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
from training.ranks import Ranks, whole
from training.signals import Signals, Stopped

log = logging.getLogger("training")
log.addHandler(logging.NullHandler())  # until a run has a log file

Batch = tuple[Tensor, Tensor]


class Diverged(UserError):  # noqa: N818
    """The numbers of a run are no longer finite."""


class Trainer:
    """Fits a model, step by step, and tells the observers.

    `batch(n)` gives the inputs and targets that follow n finished steps, `validation()` iterates
    over the whole validation split, `token_bytes[token]` counts the bytes that a token spells,
    `lr_scale(step)` is the schedule. With several ranks, `forward` is the model as `Ranks.wrap`
    gives it; every rank has a trainer, and only the first has observers.
    """

    def __init__(
        self,
        config: TrainerConfig,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        seed: int,
        device: torch.device,
        batch: Callable[[int], Batch],
        validation: Callable[[], Iterable[Batch]],
        token_bytes: Int[Tensor, " vocab"],
        floor_bpb: float | None,
        lr_scale: Callable[[int], float],
        checkpoints: Checkpoints,
        observers: Sequence[Observer] = (),
        progress: Progress | None = None,
        signals: Signals | None = None,
        ranks: Ranks | None = None,
        forward: nn.Module | None = None,
    ) -> None:
        self.config, self.model, self.optimizer = config, model, optimizer
        self.seed, self.device = seed, device
        self.batch, self.validation = batch, validation
        self.token_bytes, self.floor_bpb = token_bytes.to(device), floor_bpb
        self.lr_scale = lr_scale
        self.checkpoints, self.observers = checkpoints, observers
        self.progress = progress or Progress()
        self.signals, self.ranks = signals or Signals(), ranks or Ranks()
        self.autocast = autocast(device, config.precision)
        # What is called shares its weights with the model, which alone is saved and watched.
        self.forward = forward or model
        self.loss = torch.compile(self._loss) if config.compile else self._loss
        self.owed: set[str] = set()  # checkpoints that are due; bad steps can delay them
        self._last_tick, self._last_tokens = time.perf_counter(), self.progress.tokens

    def fit(self) -> Summary:
        """Train from where the run stands to `max_steps`; returns the result.

        Raises Stopped after a signal to stop, and UserError if the numbers stay not finite.
        """
        config, progress, summary, measured = self.config, self.progress, None, None
        log.info("training on %s from step %d to %d", self.device, progress.step, config.max_steps)
        for observer in self.observers:
            observer.on_start(progress.step)
        self._last_tick, self._last_tokens = time.perf_counter(), progress.tokens
        started = time.perf_counter() - progress.seconds
        try:
            while progress.step < config.max_steps:
                metrics = self.train_step()
                progress.seconds = time.perf_counter() - started
                for observer in self.observers:
                    observer.on_step(progress.step, metrics)
                if self._due(config.eval_every):
                    measured = self.evaluate()
                    best = progress.best_val_loss
                    if best is None or measured.loss < best:
                        self.owed.add("best")
                        progress.best_val_loss = measured.loss
                    progress.seconds = time.perf_counter() - started
                stop, save = self._asked()
                if stop or save or self._due(config.checkpoint_every):
                    self.owed.add("last")
                if self.owed:
                    self._save(is_end=bool(stop) or progress.step == config.max_steps)
                if stop and progress.step < config.max_steps:
                    raise Stopped(progress.step, stop)
            # After a kill between the last checkpoint and the summary, only that is left to do.
            summary = self._summary(measured or self._measure())
        finally:
            for observer in self.observers:
                observer.on_end(progress.step, summary)
        log.info("finished: validation loss %.4f, %.4f bpb", summary.val_loss, summary.val_bpb)
        return summary

    def train_step(self) -> StepMetrics | None:
        """One optimizer step over one whole batch; measures it every `log_every` steps."""
        config, progress = self.config, self.progress
        step = progress.step + 1
        inputs, targets = (part.to(self.device) for part in self.batch(progress.step))
        torch.manual_seed(_mix(self.seed, step, self.ranks.rank))
        total = torch.zeros((), device=self.device)
        parts = config.grad_accumulation
        mine = [self.ranks.slice(part).chunk(parts) for part in (inputs, targets)]
        for x, y in zip(*mine, strict=True):
            part_loss = self.loss(x, y) / parts
            part_loss.backward()
            total += part_loss.detach()
        total = self.ranks.sum(total) / self.ranks.count
        parameters = list(self.model.parameters())
        norm = nn.utils.get_total_norm([each.grad for each in parameters if each.grad is not None])
        # Together: each look at a number waits for the GPU.
        loss, grad_norm = torch.stack([total, whole(norm)]).tolist()
        progress.step, progress.tokens = step, progress.tokens + targets.numel()
        if not math.isfinite(loss + grad_norm):
            self._leave_out(loss, grad_norm)
            return None
        progress.bad_in_a_row = 0
        if grad_norm > config.max_grad_norm:
            nn.utils.clip_grads_with_norm_(parameters, config.max_grad_norm, norm)
        for observer in self.observers:
            observer.on_gradients(step)
        lr = self.optimizer.step(self.lr_scale(step))
        if not self._due(config.log_every):
            return None
        return self._measure_step(loss, grad_norm, lr, targets)

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Compiled as one, so that the logits in float32 need not be written to memory."""
        with self.autocast:
            logits = self.forward(x)
        return cross_entropy(logits, y)

    def evaluate(self) -> Measurement:
        """Measure the loss over the whole validation split, and tell the observers."""
        began = time.perf_counter()
        measured = self._measure()
        if not math.isfinite(measured.loss):
            raise self._diverged(f"the validation loss is {measured.loss}")
        # The time of an evaluation is no training time: tokens per second leaves it out.
        self._last_tick += time.perf_counter() - began
        step = self.progress.step
        log.info("step %d: validation loss %.4f, %.4f bpb", step, measured.loss, measured.bpb)
        for observer in self.observers:
            observer.on_eval(step, EvalMetrics(measured.loss, measured.bpb, self.floor_bpb))
        return measured

    def _measure(self) -> Measurement:
        ranks = self.ranks
        # Under fsdp all ranks must call the model equally often: each measures the whole split.
        share = ranks.count if self.config.parallel == "ddp" else 1
        measured = measure(
            self.model,
            islice(self.validation(), ranks.rank % share, None, share),
            self.token_bytes,
            self.device,
            self.autocast,
        )
        if share > 1:
            sums = torch.tensor(
                [measured.nats, measured.tokens, measured.bytes],
                dtype=torch.float64,
                device=self.device,
            )
            nats, tokens, spelled = ranks.sum(sums).tolist()
            measured = Measurement(nats, int(tokens), int(spelled))
        return measured

    def _asked(self) -> tuple[int, bool]:
        """The signal to stop (or 0) and whether to save, of which any rank may have heard."""
        signals, ranks = self.signals, self.ranks
        stop, save, signals.save = signals.stop, signals.save, False
        if ranks.count > 1:
            heard = torch.tensor([stop, save], dtype=torch.int, device=self.device)
            stop, save = ranks.largest(heard).tolist()
        return stop, bool(save)

    def _save(self, is_end: bool) -> None:
        """Write the checkpoint that is due; amid bad steps only if there is no later chance."""
        if self.progress.bad_in_a_row and not is_end:
            log.warning("step %d: the checkpoint waits for a good step", self.progress.step)
            return
        for name, parameter in self.model.named_parameters():
            if not parameter.isfinite().all():
                raise self._diverged(f"{name} holds numbers that are not finite")
        best = "best" in self.owed
        path = self.checkpoints.save(self.model, self.optimizer, self.progress, best)
        self.owed.clear()
        for observer in self.observers:
            observer.on_checkpoint(self.progress.step, path)

    def _leave_out(self, loss: float, grad_norm: float) -> None:
        """Forget the gradients of a step that is not finite, and stop if there are too many."""
        progress = self.progress
        self.optimizer.forget_gradients()
        progress.bad_steps += 1
        progress.bad_in_a_row += 1
        told = f"the loss is {loss}, the gradient norm {grad_norm}"
        log.warning("step %d is left out: %s", progress.step, told)
        if progress.bad_in_a_row >= self.config.max_bad_steps:
            raise self._diverged(f"{told}, for {progress.bad_in_a_row} steps in a row")

    def _diverged(self, what: str) -> Diverged:
        """What to raise, with the batch of the last step and what it does in the model."""
        step = self.progress.step
        inputs, _ = self.batch(step - 1)
        mine = self.ranks.slice(inputs).to(self.device)
        largest = largest_activations(self.model, mine, self.autocast)
        log.error("diverged at step %d: %s", step, what)
        log.error("largest activations: %s", largest)
        log.error("batch: %s", inputs.tolist())
        told = ", ".join(f"{name} {value:.3g}" for name, value in largest.items())
        return Diverged(
            f"optimizer.lr: training diverged at step {step}: {what}. Largest activations of that "
            f"batch: {told}. The batch stands in train.log; checkpoints hold finite numbers only. "
            "Lower optimizer.lr, raise optimizer.warmup_steps or lower trainer.max_grad_norm"
        )

    def _measure_step(
        self, loss: float, grad_norm: float, lr: float, targets: Tensor
    ) -> StepMetrics:
        tokens = self.progress.tokens
        now = time.perf_counter()
        rate = (tokens - self._last_tokens) / (now - self._last_tick)
        self._last_tick, self._last_tokens = now, tokens
        bits = loss * targets.numel() / math.log(2)
        bpb = bits / int(self.token_bytes[targets].sum())
        return StepMetrics(loss, bpb, lr, grad_norm, tokens, rate)

    def _due(self, every: int) -> bool:
        at_end = self.progress.step == self.config.max_steps
        return at_end or (every > 0 and self.progress.step % every == 0)

    def _summary(self, measured: Measurement) -> Summary:
        progress = self.progress
        assert progress.best_val_loss is not None
        return Summary(
            val_loss=measured.loss,
            val_bpb=measured.bpb,
            floor_bpb=self.floor_bpb,
            best_val_loss=progress.best_val_loss,
            # The split, and so its number of bytes a token, is the same at every evaluation.
            best_val_bpb=measured.bpb * progress.best_val_loss / measured.loss,
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
