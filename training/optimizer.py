"""Optimizers and the learning rate as a function of the step.

`adamw` is PyTorch's fused AdamW for everything. `muon` is Muon for the matrices inside the blocks,
with fused AdamW for embeddings, norms and biases, as its author advises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from training.muon import Muon
from training.ranks import part_like

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
            # Above, the step itself would not fit into float32.
            if value is not None and not 0 < value <= 1e36:
                raise ValueError(
                    f"{field}: {value} is out of range; give a number above 0, up to 1e36"
                )
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
                    f"{field}: {self.name} {verb} {field}; choose optimizer=muon or optimizer=adamw"
                )


def lr_scale(step: int, max_steps: int, config: OptimizerConfig) -> float:
    """The share of the peak learning rate at step 1..max_steps: warm-up, plateau, linear decay."""
    warmup = min(1.0, step / (config.warmup_steps + 1))
    decay_steps = config.decay_fraction * max_steps
    remaining = max_steps + 1 - step
    return min(warmup, remaining / decay_steps if remaining < decay_steps else 1.0)


class AdamW:
    """AdamW (Loshchilov and Hutter 2019, algorithm 2) by PyTorch's fused kernel.

    The class `torch.optim.AdamW` takes the same steps, but to make one imports PyTorch's compiler,
    which takes longer than all else before the first step.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
    ) -> None:
        self.lr, self.weight_decay, self.betas = lr, weight_decay, betas
        self.state = {
            each: {
                "step": torch.zeros((), device=each.device),
                "exp_avg": torch.zeros_like(each),
                "exp_avg_sq": torch.zeros_like(each),
            }
            for each in parameters
        }

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Update every parameter that has a gradient, at `scale` times the learning rate."""
        moving = [each for each in self.state if each.grad is not None]
        adamw(
            list[Tensor](moving),
            [each.grad for each in moving if each.grad is not None],
            [self.state[each]["exp_avg"] for each in moving],
            [self.state[each]["exp_avg_sq"] for each in moving],
            max_exp_avg_sqs=[],
            state_steps=[self.state[each]["step"] for each in moving],
            fused=True,
            amsgrad=False,
            maximize=False,
            lr=self.lr * scale,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=1e-8,
        )


class Optimizer:
    """The rules that move a model's parameters, driven by one schedule."""

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        matrices, embeddings, vectors = _sort_parameters(model)
        lr, decay, betas = config.lr, config.weight_decay, (config.beta1, config.beta2)
        self.rules: list[AdamW | Muon] = []
        if config.name == "muon":
            assert config.momentum is not None and config.adamw_lr is not None
            self.rules.append(Muon(matrices, lr, decay, config.momentum))
            matrices, lr = [], config.adamw_lr
        self.rules.append(AdamW(matrices + embeddings, lr, decay, betas))
        self.rules.append(AdamW(vectors, lr, 0.0, betas))
        self._names = {parameter: name for name, parameter in model.named_parameters()}

    def step(self, scale: float) -> float:
        """Update the parameters at `scale` times the peak rates and free the gradients.

        Returns the first rule's rate: that of `optimizer.lr`.
        """
        for rule in self.rules:
            rule.step(scale)
        self.forget_gradients()
        return self.rules[0].lr * scale

    def forget_gradients(self) -> None:
        """Free the gradients."""
        for parameter in self._names:
            parameter.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        """All state as flat tensors, named `<parameter>/<state>`."""
        return {
            f"{self._names[parameter]}/{key}": tensor
            for rule in self.rules
            for parameter, state in rule.state.items()
            for key, tensor in state.items()
        }

    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `state_tensors`, for the same model and optimizer.

        Raises ValueError if a tensor is missing or of another shape.
        """
        for name, tensor in self.state_tensors().items():
            if name not in tensors or tensors[name].shape != tensor.shape:
                raise ValueError(f"{name} is missing or of another shape")
            tensor.copy_(part_like(tensors[name].to(tensor.device), tensor))


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
