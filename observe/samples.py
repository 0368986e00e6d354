"""Samples of a sharded model, which all ranks write together.

Promises: the other observers of the main process find the sample written when they show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from training.observer import EvalMetrics, Observer, Summary

if TYPE_CHECKING:
    from observe.observed import ObservedRun


class Samples(Observer):
    """Writes a sample whenever TensorBoard or the terminal is about to show one."""

    def __init__(self, observed: ObservedRun, tensorboard: bool, terminal: bool) -> None:
        self.observed, self.tensorboard, self.terminal = observed, tensorboard, terminal

    def on_eval(self, step: int, metrics: EvalMetrics) -> None:
        if self.tensorboard and self.observed.logs_sample(step):
            self.observed.sample()

    def on_end(self, step: int, summary: Summary | None) -> None:
        if self.terminal and summary is not None:
            self.observed.sample()
