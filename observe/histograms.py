"""Histograms of every weight and its gradient in TensorBoard, grouped by layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from errors import check_range
from model import full_tensor
from training.observer import Observer, StepMetrics

if TYPE_CHECKING:
    from observe.observed import ObservedRun


@dataclass
class HistogramsConfig:
    """Histograms are logged every `every` steps (0: never)."""

    every: int

    def __post_init__(self) -> None:
        check_range("every", self.every, 0, 10**12)


class Histograms(Observer):
    """Logs `layer <n>/<name>` for each weight and `layer <n>/<name> gradient` for its gradient;
    parameters outside the layers are under `around the layers`.

    Weights are those after a step. Gradients are those of the step, after clipping, and with
    several ranks averaged over them.
    """

    def __init__(self, config: HistogramsConfig, observed: ObservedRun) -> None:
        self.writer, self.model, self.every = observed.writer, observed.model, config.every
        self.cost = observed.cost

    def on_start(self, step: int) -> None:
        if step == 0:
            self._log(step, self.model.named_parameters())

    def wants_gradients(self, step: int) -> bool:
        return step % self.every == 0

    def on_gradients(self, step: int) -> None:
        if self.wants_gradients(step):
            self._log(
                step,
                (
                    (f"{name} gradient", parameter.grad)
                    for name, parameter in self.model.named_parameters()
                    if parameter.grad is not None
                ),
            )

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        if step % self.every == 0:
            self._log(step, self.model.named_parameters())

    def _log(self, step: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        with self.cost:
            for name, tensor in tensors:  # of a sharded model, one full tensor at a time
                full = full_tensor(tensor.detach()).float()
                # TensorBoard's bins end at 1e20; a diverging run goes beyond.
                if self.writer is not None and full.abs().max() < 1e20:
                    self.writer.add_histogram(histogram_tag(name), full, step)


def histogram_tag(name: str) -> str:
    """The name of a parameter after that of its layer, by which TensorBoard groups."""
    if name.startswith("blocks."):
        _, layer, rest = name.split(".", 2)
        return f"layer {layer}/{rest}"
    return f"around the layers/{name}"
