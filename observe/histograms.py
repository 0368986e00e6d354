"""Histograms of every weight and its gradient in TensorBoard, grouped by layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from errors import check_range
from model import GPT
from training.observer import Observer, StepMetrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@dataclass
class HistogramsConfig:
    """Histograms are logged every `every` steps (0: never)."""

    every: int = 0

    def __post_init__(self) -> None:
        check_range("every", self.every, 0, 10**12)


class Histograms(Observer):
    """Logs `layer <n>/<name>` for each weight and `layer <n>/<name> gradient` beside it; what
    stands outside the layers is under `around the layers`.

    The weights of a step are those after it, and its gradients those that led there: clipped, and
    with several ranks the mean over them.
    """

    def __init__(self, writer: SummaryWriter, model: GPT, every: int) -> None:
        self.writer, self.model, self.every = writer, model, every

    def on_start(self, step: int) -> None:
        if step == 0:
            self._log(step, self.model.named_parameters())

    def on_gradients(self, step: int) -> None:
        if step % self.every == 0:
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
        for name, tensor in tensors:
            self.writer.add_histogram(histogram_tag(name), tensor.detach().float(), step)


def histogram_tag(name: str) -> str:
    """A parameter's name with its layer in front, by which TensorBoard groups."""
    if name.startswith("blocks."):
        _, layer, rest = name.split(".", 2)
        return f"layer {layer}/{rest}"
    return f"around the layers/{name}"
