"""Optimizers and the learning rate as a function of the step.

`adamw` is PyTorch's fused AdamW for all parameters. `muon` is Muon for the matrices inside the
blocks and fused AdamW for embeddings, norms and biases, as the author of Muon recommends. `sgd` is
SGD with momentum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.optim.adamw import adamw

from common.errors import check_range
from store.weights import OPTIMIZER, load_tensors
from training.muon import Muon


@dataclass
class OptimizerConfig:
    """The settings of every optimizer; configs/optimizer/ explains them."""

    name: str
    lr: float
    weight_decay: float
    warmup_steps: int
    decay_fraction: float
    decay_power: float

    def __post_init__(self) -> None:
        check_rate("lr", self.lr)
        check_range("weight_decay", self.weight_decay, least=0)
        check_range("warmup_steps", self.warmup_steps, least=0)
        check_range("decay_fraction", self.decay_fraction, 0, 1)
        check_range("decay_power", self.decay_power, above=0, most=10)


@dataclass
class AdamWConfig(OptimizerConfig):
    beta1: float
    beta2: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("beta1", self.beta1, least=0, below=1)
        check_range("beta2", self.beta2, least=0, below=1)


@dataclass
class MuonConfig(AdamWConfig):
    momentum: float
    adamw_lr: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("momentum", self.momentum, least=0, below=1)
        check_rate("adamw_lr", self.adamw_lr)


@dataclass
class SGDConfig(OptimizerConfig):
    momentum: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("momentum", self.momentum, least=0, below=1)


def check_rate(name: str, rate: float) -> None:
    """Raise ValueError for a learning rate whose step would not fit into float32."""
    check_range(name, rate, above=0, most=1e36)


def lr_scale(step: int, max_steps: int, config: OptimizerConfig) -> float:
    """The factor on the peak rate at step 1..max_steps: linear warm-up, constant, polynomial
    decay."""
    warmup = min(1.0, step / (config.warmup_steps + 1))
    decay_steps = config.decay_fraction * max_steps
    remaining = max_steps + 1 - step
    decay = remaining / decay_steps if remaining < decay_steps else 1.0
    return min(warmup, decay**config.decay_power)


class AdamW:
    """AdamW (Loshchilov and Hutter 2019, algorithm 2) with PyTorch's fused kernel.

    `torch.optim.AdamW` computes the same, but its constructor imports PyTorch's compiler, which
    takes longer than everything else before the first step.
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
            parameter: {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
            for parameter in parameters
        }

    @torch.no_grad()
    def step(self, scale: float, is_finite: Bool[Tensor, ""]) -> None:
        """Update every parameter that has a gradient, at `scale` times the learning rate; change
        nothing unless `is_finite`."""
        moving = [parameter for parameter in self.state if parameter.grad is not None]
        adamw(
            [*moving],
            [parameter.grad for parameter in moving if parameter.grad is not None],
            [self.state[parameter]["exp_avg"] for parameter in moving],
            [self.state[parameter]["exp_avg_sq"] for parameter in moving],
            max_exp_avg_sqs=[],
            state_steps=[self.state[parameter]["step"] for parameter in moving],
            fused=True,
            found_inf=is_finite.logical_not().float(),
            amsgrad=False,
            maximize=False,
            lr=self.lr * scale,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=1e-8,
        )


class SGD:
    """SGD with momentum (Polyak 1964) and decoupled weight decay."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float, momentum: float
    ) -> None:
        self.lr, self.weight_decay, self.momentum = lr, weight_decay, momentum
        self.state = {
            parameter: {"momentum_buffer": torch.zeros_like(parameter)} for parameter in parameters
        }

    @torch.no_grad()
    def step(self, scale: float, is_finite: Bool[Tensor, ""]) -> None:
        """Update every parameter that has a gradient, at `scale` times the learning rate; change
        nothing unless `is_finite`."""
        rate = self.lr * scale * is_finite
        for parameter, state in self.state.items():
            if parameter.grad is not None:
                velocity = state["momentum_buffer"]
                new = velocity * self.momentum + parameter.grad
                velocity.copy_(new.where(is_finite, velocity))
                parameter.mul_(1 - rate * self.weight_decay)
                parameter.sub_(velocity * rate)


Rule = AdamW | Muon | SGD
Parameters = list[nn.Parameter]


def _adamw(
    config: AdamWConfig, matrices: Parameters, embeddings: Parameters, vectors: Parameters
) -> list[Rule]:
    lr, betas = config.lr, (config.beta1, config.beta2)
    return [
        AdamW(matrices + embeddings, lr, config.weight_decay, betas),
        AdamW(vectors, lr, 0.0, betas),
    ]


def _muon(
    config: MuonConfig, matrices: Parameters, embeddings: Parameters, vectors: Parameters
) -> list[Rule]:
    betas = (config.beta1, config.beta2)
    return [
        Muon(matrices, config.lr, config.weight_decay, config.momentum),
        AdamW(embeddings, config.adamw_lr, config.weight_decay, betas),
        AdamW(vectors, config.adamw_lr, 0.0, betas),
    ]


def _sgd(
    config: SGDConfig, matrices: Parameters, embeddings: Parameters, vectors: Parameters
) -> list[Rule]:
    return [
        SGD(matrices + embeddings, config.lr, config.weight_decay, config.momentum),
        SGD(vectors, config.lr, 0.0, config.momentum),
    ]


class OptimizerKind(NamedTuple):
    """The settings of an optimizer, and what builds its update rules: one or more, for the matrices
    inside the blocks, the embedding matrices, and the norms and biases."""

    config: type[OptimizerConfig]
    build: Callable[[Any, Parameters, Parameters, Parameters], list[Rule]]


# By optimizer.name. A new optimizer also needs configs/optimizer/<name>.yaml.
OPTIMIZERS = {
    "adamw": OptimizerKind(AdamWConfig, _adamw),
    "muon": OptimizerKind(MuonConfig, _muon),
    "sgd": OptimizerKind(SGDConfig, _sgd),
}


class Optimizer:
    """The update rules of a model's parameters, with one schedule over `max_steps`.

    fast: what the device computes fast (`Precision.fast`): Muon iterates in bfloat16 if it is that.
    """

    def __init__(
        self,
        model: nn.Module,
        config: OptimizerConfig,
        max_steps: int,
        fast: torch.dtype = torch.float32,
    ) -> None:
        self.config, self.max_steps = config, max_steps
        self.rules = OPTIMIZERS[config.name].build(config, *_group_parameters(model))
        for rule in self.rules:
            if isinstance(rule, Muon) and fast == torch.bfloat16:
                rule.dtype = fast
        self._names = {parameter: name for name, parameter in model.named_parameters()}

    def step(self, number: int, is_finite: Bool[Tensor, ""]) -> float:
        """Update the parameters at the rates of step `number`, which is 1 to `max_steps`; change
        nothing unless `is_finite`, which the host does not wait for.

        Returns the rate of the first rule: that of `optimizer.lr`.
        """
        scale = lr_scale(number, self.max_steps, self.config)
        for rule in self.rules:
            rule.step(scale, is_finite)
        return self.rules[0].lr * scale

    def zero_grad(self) -> None:
        """Free the gradients."""
        for parameter in self._names:
            parameter.grad = None

    def state_tensors(self) -> dict[str, Tensor]:
        """All state as flat tensors, named `<parameter>/<state>`; to be read or filled."""
        return {
            f"{self._names[parameter]}/{key}": tensor
            for rule in self.rules
            for parameter, state in rule.state.items()
            for key, tensor in state.items()
        }


def load_optimizer(optimizer: Optimizer, checkpoint: Path) -> None:
    """Load the state of an optimizer. Raises UserError as `load_weights`."""
    load_tensors(checkpoint / OPTIMIZER, optimizer.state_tensors())


def _group_parameters(model: nn.Module) -> tuple[Parameters, Parameters, Parameters]:
    """Matrices inside the blocks; embedding matrices; norms and biases. Constants are in none."""
    matrices, embeddings, vectors = [], [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim < 2:
            vectors.append(parameter)
        elif name.startswith("blocks."):
            matrices.append(parameter)
        else:
            embeddings.append(parameter)
    return matrices, embeddings, vectors
