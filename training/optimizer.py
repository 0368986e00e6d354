"""Optimizers and the learning rate as a function of the step.

`adamw` is PyTorch's fused AdamW for everything. `muon` is Muon for the matrices inside the blocks,
with fused AdamW for embeddings, norms and biases, as its author advises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from training.muon import Muon

OPTIMIZERS = ("adamw", "muon")


@dataclass
class OptimizerConfig:
    """`lr` is the peak rate. With muon it is Muon's, and `adamw_lr` that of everything else.

    The rate rises linearly over `warmup_steps`, stays, and falls linearly to zero over the last
    `decay_fraction` of the run. Weight decay is decoupled and spares norms and biases.
    """

    name: str
    lr: float
    weight_decay: float
    beta1: float
    beta2: float
    warmup_steps: int
    decay_fraction: float
    adamw_lr: float | None = None
    momentum: float | None = None

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise ValueError(
                f"name: {self.name!r} is unknown; choose one of {', '.join(OPTIMIZERS)}"
            )
        for field in ("lr", "adamw_lr"):
            value = getattr(self, field)
            if value is not None and not (0 < value < math.inf):
                raise ValueError(f"{field}: {value} is out of range; give a number above 0")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay: {self.weight_decay} is out of range; give 0 or more")
        for field in ("beta1", "beta2", "momentum"):
            value = getattr(self, field)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{field}: {value} is out of range; give 0 <= {field} < 1")
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps: {self.warmup_steps} is negative; give 0 or more")
        if not 0 <= self.decay_fraction <= 1:
            raise ValueError(f"decay_fraction: {self.decay_fraction} is out of range; give 0 to 1")
        needed = ("adamw_lr", "momentum") if self.name == "muon" else ()
        for field in ("adamw_lr", "momentum"):
            if (getattr(self, field) is not None) != (field in needed):
                verb = "needs" if field in needed else "has no"
                raise ValueError(
                    f"{field}: optimizer={self.name} {verb} {field}; choose muon or adamw"
                )


def lr_scale(step: int, max_steps: int, config: OptimizerConfig) -> float:
    """The share of the peak learning rate at step 1..max_steps: warm-up, plateau, linear decay."""
    warmup = min(1.0, step / (config.warmup_steps + 1))
    decay_steps = config.decay_fraction * max_steps
    remaining = max_steps + 1 - step
    return min(warmup, remaining / decay_steps if remaining < decay_steps else 1.0)


class Optimizer:
    """One or two torch optimizers over one model, driven by one schedule."""

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        matrices, embeddings, vectors = _sort_parameters(model)
        adamw_lr = config.lr if config.adamw_lr is None else config.adamw_lr
        betas = (config.beta1, config.beta2)
        decayed = embeddings if config.name == "muon" else matrices + embeddings
        groups = [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW([g for g in groups if g["params"]], adamw_lr, betas, fused=True)
        ]
        if config.name == "muon":
            assert config.momentum is not None
            muon = Muon(matrices, config.lr, config.weight_decay, config.momentum)
            self.optimizers.insert(0, muon)
        self._groups = [group for each in self.optimizers for group in each.param_groups]
        self._peaks = [group["lr"] for group in self._groups]
        self._names: dict[torch.Tensor, str] = {
            parameter: name for name, parameter in model.named_parameters()
        }

    def step(self, scale: float) -> float:
        """Update the parameters at `scale` times the peak rates and free the gradients.

        Returns the first group's rate: that of `optimizer.lr`.
        """
        for group, peak in zip(self._groups, self._peaks, strict=True):
            group["lr"] = peak * scale
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return self._groups[0]["lr"]

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """All state as flat tensors, named `<parameter>/<state>`."""
        return {
            f"{self._names[parameter]}/{key}": value
            for optimizer in self.optimizers
            for parameter, state in optimizer.state.items()
            for key, value in state.items()
        }

    def load_state_tensors(self, tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state_tensors`, for the same model and optimizer."""
        for optimizer in self.optimizers:
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                prefix = self._names[parameter] + "/"
                optimizer.state[parameter] = {
                    key.removeprefix(prefix): value.to(parameter.device)
                    for key, value in tensors.items()
                    if key.startswith(prefix)
                }


def _sort_parameters(
    model: nn.Module,
) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Matrices inside the blocks; those outside, which embed and unembed; norms and biases."""
    matrices, embeddings, vectors = [], [], []
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            vectors.append(parameter)
        elif name.startswith("blocks."):
            matrices.append(parameter)
        else:
            embeddings.append(parameter)
    return matrices, embeddings, vectors
