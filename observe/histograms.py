"""Histograms of every weight and its gradient in TensorBoard, grouped by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from common.errors import check_range
from model import GPT
from training.callback import Callback

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from training.trainer import Trainer


@dataclass
class HistogramsConfig:
    """Histograms are logged every `every` steps (0: never)."""

    every: int

    def __post_init__(self) -> None:
        check_range("every", self.every, 0, 10**12)


class Histograms(Callback):
    """Logs `layer <n>/<name>` for each weight and `layer <n>/<name> gradient` for its gradient;
    parameters outside the layers are under `around the layers`.

    Weights are those after a step. Gradients are those of the step, after clipping, and with
    several ranks averaged over them.
    """

    def __init__(self, every: int, model: GPT, writer: SummaryWriter) -> None:
        self.every, self.model, self.writer = every, model, writer

    def on_start(self, trainer: Trainer) -> None:
        if trainer.state.step == 0:
            self.on_step(trainer)

    def on_step(self, trainer: Trainer) -> None:
        step = trainer.state.step
        if step % self.every != 0:
            return
        for name, parameter in self.model.named_parameters():
            self._log(name, parameter.detach(), step)
            if parameter.grad is not None:
                self._log(f"{name} gradient", parameter.grad, step)

    def _log(self, name: str, tensor: Tensor, step: int) -> None:
        if tensor.abs().max() < 1e20:  # where TensorBoard's bins end; a diverging run goes beyond
            self.writer.add_histogram(histogram_tag(name), tensor.float(), step)


def histogram_tag(name: str) -> str:
    """The name of a parameter after that of its layer, by which TensorBoard groups."""
    if name.startswith("blocks."):
        _, layer, rest = name.split(".", 2)
        return f"layer {layer}/{rest}"
    return f"around the layers/{name}"
