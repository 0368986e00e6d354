"""The training loop. It knows no screen, no file format and nothing of what the tokens mean.

The batch of step s and its dropout are pure functions of (seed, s), so a run that is cut and
resumed takes the same steps as one that is not.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from errors import UserError
from training.checkpoint import Checkpoints, Progress
from training.device import DEVICES, PRECISIONS, autocast
from training.evaluation import Measurement, cross_entropy, measure
from training.observer import EvalMetrics, Observer, StepMetrics, Summary
from training.optimizer import Optimizer

log = logging.getLogger("training")

Batch = tuple[Tensor, Tensor]


@dataclass
class TrainerConfig:
    """`batch_size` counts the sequences of one step; `grad_accumulation` cuts them into that many
    parts that go through the model one by one, which saves memory and changes no result but the
    draws of dropout.

    `eval_every`, `checkpoint_every` and `log_every` count steps; 0 means only at the end.
    """

    max_steps: int
    batch_size: int
    eval_every: int
    checkpoint_every: int
    log_every: int
    grad_accumulation: int
    max_grad_norm: float
    device: str
    precision: str
    compile: bool

    def __post_init__(self) -> None:
        for field in ("max_steps", "batch_size", "log_every", "grad_accumulation"):
            if not 1 <= getattr(self, field) <= 10**12:
                raise ValueError(f"{field}: {getattr(self, field)} is out of range; give 1 or more")
        for field in ("eval_every", "checkpoint_every"):
            value = getattr(self, field)
            if value < 0:
                raise ValueError(f"{field}: {value} is negative; give 0 (only at the end) or more")
        if self.batch_size % self.grad_accumulation:
            raise ValueError(
                f"grad_accumulation: {self.grad_accumulation} does not divide "
                f"batch_size={self.batch_size}; choose a divisor"
            )
        if not 0 < self.max_grad_norm < math.inf:
            raise ValueError(
                f"max_grad_norm: {self.max_grad_norm} is out of range; give a number above 0"
            )
        for field, choices in (("device", DEVICES), ("precision", PRECISIONS)):
            value = getattr(self, field)
            if value not in choices:
                raise ValueError(f"{field}: {value!r} is unknown; choose {', '.join(choices)}")


class Trainer:
    """Fits a model, step by step, and tells the observers.

    `batch(n)` gives the inputs and targets that follow n finished steps, `validation()` iterates
    over the whole validation split, `token_bytes[token]` counts the bytes that a token spells,
    `lr_scale(step)` is the schedule.
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
    ) -> None:
        self.config, self.model, self.optimizer = config, model, optimizer
        self.seed, self.device = seed, device
        self.batch, self.validation = batch, validation
        self.token_bytes, self.floor_bpb = token_bytes.to(device), floor_bpb
        self.lr_scale = lr_scale
        self.checkpoints, self.observers = checkpoints, observers
        self.progress = progress or Progress()
        self.autocast = autocast(device, config.precision)
        # The compiled module shares its weights with the model, which alone is saved and watched.
        self.forward = torch.compile(model) if config.compile else model

    def fit(self) -> Summary:
        """Train from where the run stands to `max_steps`; returns the result."""
        config, progress, summary = self.config, self.progress, None
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
                improved = False
                if self._due(config.eval_every):
                    measured = self.evaluate()
                    improved = measured.loss < (progress.best_val_loss or math.inf)
                    progress.best_val_loss = min(measured.loss, progress.best_val_loss or math.inf)
                    progress.seconds = time.perf_counter() - started
                if improved or self._due(config.checkpoint_every):
                    path = self.checkpoints.save(self.model, self.optimizer, progress, improved)
                    for observer in self.observers:
                        observer.on_checkpoint(progress.step, path)
            summary = self._summary(measured)
        finally:
            for observer in self.observers:
                observer.on_end(progress.step, summary)
        log.info("finished: validation loss %.4f, %.4f bpb", summary.val_loss, summary.val_bpb)
        return summary

    def train_step(self) -> StepMetrics | None:
        """One optimizer step over one whole batch; measures it every `log_every` steps."""
        config, progress = self.config, self.progress
        step = progress.step + 1
        inputs, targets = (
            part.to(self.device, non_blocking=True) for part in self.batch(progress.step)
        )
        torch.manual_seed(_mix(self.seed, step))
        loss = torch.zeros((), device=self.device)
        parts = config.grad_accumulation
        for x, y in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
            with self.autocast:
                logits = self.forward(x)
            part_loss = cross_entropy(logits, y) / parts
            part_loss.backward()
            loss += part_loss.detach()
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.max_grad_norm)
        lr = self.optimizer.step(self.lr_scale(step))
        progress.step, progress.tokens = step, progress.tokens + targets.numel()
        if not self._due(config.log_every):
            return None
        return self._measure_step(loss.item(), grad_norm.item(), lr, targets)

    def evaluate(self) -> Measurement:
        """The loss over the whole validation split."""
        began = time.perf_counter()
        measured = measure(
            self.model, self.validation(), self.token_bytes, self.device, self.autocast
        )
        self._check_finite(measured.loss, "validation loss")
        # The time of an evaluation is no training time: tokens per second leaves it out.
        self._last_tick += time.perf_counter() - began
        step = self.progress.step
        log.info("step %d: validation loss %.4f, %.4f bpb", step, measured.loss, measured.bpb)
        for observer in self.observers:
            observer.on_eval(step, EvalMetrics(measured.loss, measured.bpb, self.floor_bpb))
        return measured

    def _measure_step(
        self, loss: float, grad_norm: float, lr: float, targets: Tensor
    ) -> StepMetrics:
        tokens = self.progress.tokens
        self._check_finite(loss, "loss")
        self._check_finite(grad_norm, "gradient norm")
        now = time.perf_counter()
        rate = (tokens - self._last_tokens) / (now - self._last_tick)
        self._last_tick, self._last_tokens = now, tokens
        bits = loss * targets.numel() / math.log(2)
        bpb = bits / int(self.token_bytes[targets].sum())
        return StepMetrics(loss, bpb, lr, grad_norm, tokens, rate)

    def _check_finite(self, value: float, name: str) -> None:
        if not math.isfinite(value):
            raise UserError(
                f"optimizer.lr: training diverged, the {name} is {value} at step "
                f"{self.progress.step}; lower optimizer.lr or raise optimizer.warmup_steps"
            )

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
            steps=progress.step,
            tokens=progress.tokens,
            seconds=round(progress.seconds, 3),
            tokens_per_second=round(progress.tokens / progress.seconds, 1),
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
        )


def _mix(seed: int, step: int) -> int:
    """A well-spread 64-bit seed for every (seed, step)."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0])
