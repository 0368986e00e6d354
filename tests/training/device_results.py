"""The results in float64 of what training/device_check.py computes, from formulas, or from other
functions of PyTorch. `python -m tests.training.device_results` stores them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from training.device_check import (
    IDS,
    OPERATIONS,
    PARTS,
    RESULTS,
    ROWS,
    TARGETS,
    WIDTH,
    numbers,
)
from training.muon import COEFFICIENTS


def attention(first: int, window: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Of the queries from `first` on, each to the newest keys in its window."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        distance = torch.arange(ROWS)[:, None] - torch.arange(ROWS)
        mask = (distance >= 0) & (distance < window)
        context = F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
        return context[:, :, first:]

    return attend


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return rms_norm(x - x.mean(-1, keepdim=True), gain) + bias


def rotary(x: Tensor) -> Tensor:
    """In complex numbers, which a product with one of length 1 rotates."""
    rates = 500.0 ** (-torch.arange(0, WIDTH, 2).double() / WIDTH)
    angles = torch.outer(torch.arange(2, ROWS + 2).double(), rates)
    turned = torch.complex(*x.chunk(2, -1)) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], -1)


def loss(hidden: Tensor, weight: Tensor) -> Tensor:
    return F.cross_entropy(hidden[0] @ weight.T, TARGETS[0], reduction="sum")


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "embedding": lambda weight: weight[IDS],
    "linear layer": lambda x, weight, bias: (x[..., None, :] * weight).sum(-1) + bias,
    "RMSNorm": rms_norm,
    "LayerNorm": layer_norm,
    "rotary positions": rotary,
    "causal attention": attention(0, ROWS),
    "wide attention": attention(0, ROWS),
    "attention with a mask": attention(2, 4),
    "attention in steps": attention(2, 4),
    "loss": loss,
}


def differentiate(
    function: Callable[..., Tensor], shapes: Sequence[tuple[int, ...]]
) -> list[Tensor]:
    leaves = [numbers(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]
    value = function(*leaves)
    gradients = torch.autograd.grad(value, leaves, numbers(*value.shape, seed=9))
    return [value, *gradients]


@torch.no_grad()
def moved(make: Callable[[list[nn.Parameter]], Callable[[], object]]) -> list[Tensor]:
    """How two parameters move in two steps with clipped gradients."""
    start = [numbers(ROWS, WIDTH), numbers(WIDTH, ROWS)]
    parameters = [nn.Parameter(each.clone()) for each in start]
    step = make(parameters)
    for seed in (2, 3):
        for parameter in parameters:
            parameter.grad = numbers(*parameter.shape, seed=seed)
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        step()
    return [*(after - before for after, before in zip(parameters, start, strict=True)), norm]


def adamw(parameters: list[nn.Parameter]) -> Callable[[], object]:
    return torch.optim.AdamW(parameters, lr=0.05, betas=(0.9, 0.99), weight_decay=0.5).step


def muon(parameters: list[nn.Parameter]) -> Callable[[], object]:
    """On the singular values of the updates."""
    means = [torch.zeros_like(each) for each in parameters]
    a, b, c = COEFFICIENTS

    def step() -> None:
        for parameter, mean in zip(parameters, means, strict=True):
            assert parameter.grad is not None
            mean.copy_(0.9 * mean + 0.1 * parameter.grad)
            nesterov = 0.1 * parameter.grad + 0.9 * mean
            u, s, vh = torch.linalg.svd(nesterov, full_matrices=False)
            s = s / s.norm()
            for _ in range(5):
                s = a * s + b * s**3 + c * s**5
            parameter.mul_(1 - 0.05 * 0.5).sub_(0.05 * (u * s) @ vh * 0.2 * math.sqrt(WIDTH))

    return step


def results() -> dict[str, Tensor]:
    """By name and number. Those of single operations are what PyTorch computes in float64."""
    tensors = [numbers(ROWS, WIDTH, seed=seed) for seed in (1, 2, 3)]
    found = {name: [operation(*tensors)] for name, operation in OPERATIONS.items()}
    found |= {name: differentiate(FORMULAS[name], shapes) for name, (_, shapes) in PARTS.items()}
    found |= {"AdamW": moved(adamw), "Muon": moved(muon)}
    return {
        f"{name} {i}": value.detach().double().flatten().contiguous()
        for name, values in found.items()
        for i, value in enumerate(values)
    }


if __name__ == "__main__":
    save_file(results(), RESULTS)
