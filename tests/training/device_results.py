"""The results in float64 of what training/device_check.py computes; those of its parts come from
formulas that are written out. `python -m tests.training.device_results` stores them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from safetensors.torch import save_file
from torch import Tensor

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

Mask = Callable[[int, int], bool]


def attention(mask: Mask) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Of the newest queries, each with its own loop over the keys; query heads share a key."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        first, rows = 0 if mask is causal else 2, []
        heads, width = query.shape[1], query.shape[3]
        for head in range(heads):
            shared = head * key.shape[1] // heads
            for i in range(first, ROWS):
                seen = [j for j in range(ROWS) if mask(i, j)]
                scores = torch.stack([query[0, head, i] @ key[0, shared, j] for j in seen])
                weights = (scores / math.sqrt(width)).exp()
                weights = weights / weights.sum()
                rows.append(weights @ value[0, shared, seen])
        return torch.stack(rows).reshape(1, heads, ROWS - first, width)

    return attend


def causal(i: int, j: int) -> bool:
    return j <= i


def windowed(i: int, j: int) -> bool:
    return i - 4 < j <= i


def embedding(weight: Tensor) -> Tensor:
    return torch.stack([weight[i] for i in IDS])


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x[..., None, :] * weight).sum(-1) + bias


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain + bias


def rotary(x: Tensor) -> Tensor:
    half = WIDTH // 2
    rows = []
    for position in range(ROWS):
        turned = x[:, :, position].clone()
        for i in range(half):
            angle = (position + 2) * 500.0 ** (-2 * i / WIDTH)
            one, other = x[:, :, position, i], x[:, :, position, i + half]
            turned[..., i] = one * math.cos(angle) - other * math.sin(angle)
            turned[..., i + half] = other * math.cos(angle) + one * math.sin(angle)
        rows.append(turned)
    return torch.stack(rows, dim=2)


def loss(hidden: Tensor, weight: Tensor) -> Tensor:
    total = hidden.new_zeros(())
    for x, target in zip(hidden[0], TARGETS[0].tolist(), strict=True):
        if target >= 0:
            logits = (weight * x).sum(-1)
            total = total + logits.exp().sum().log() - logits[target]
    return total


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "embedding": embedding,
    "linear layer": linear,
    "RMSNorm": rms_norm,
    "LayerNorm": layer_norm,
    "rotary positions": rotary,
    "causal attention": attention(causal),
    "wide attention": attention(causal),
    "attention with a mask": attention(windowed),
    "attention in steps": attention(windowed),
    "loss": loss,
}


def differentiate(
    function: Callable[..., Tensor], shapes: Sequence[tuple[int, ...]]
) -> list[Tensor]:
    leaves = [numbers(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]
    value = function(*leaves)
    gradients = torch.autograd.grad(value, leaves, numbers(*value.shape, seed=9))
    return [value, *gradients]


def clipped(seed: int) -> tuple[list[Tensor], Tensor]:
    gradients = [numbers(*shape, seed=seed) for shape in ((ROWS, WIDTH), (WIDTH, ROWS))]
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    return [gradient / (norm + 1e-6).clamp(min=1) for gradient in gradients], norm


def moved_by_adamw() -> list[Tensor]:
    start = [numbers(ROWS, WIDTH), numbers(WIDTH, ROWS)]
    now = [each.clone() for each in start]
    means, squares = ([torch.zeros_like(each) for each in start] for _ in range(2))
    for step, seed in enumerate((2, 3), 1):
        gradients, norm = clipped(seed)
        for i, gradient in enumerate(gradients):
            means[i] = 0.9 * means[i] + 0.1 * gradient
            squares[i] = 0.99 * squares[i] + 0.01 * gradient**2
            size = (squares[i] / (1 - 0.99**step)).sqrt() + 1e-8
            now[i] = now[i] * (1 - 0.05 * 0.5) - 0.05 * means[i] / (1 - 0.9**step) / size
    return [*(a - b for a, b in zip(now, start, strict=True)), norm]


def moved_by_muon() -> list[Tensor]:
    start = [numbers(ROWS, WIDTH), numbers(WIDTH, ROWS)]
    now, means = ([each * n for each in start] for n in (1, 0))
    a, b, c = COEFFICIENTS
    for seed in (2, 3):
        gradients, norm = clipped(seed)
        for i, gradient in enumerate(gradients):
            means[i] = 0.9 * means[i] + 0.1 * gradient
            u, s, vh = torch.linalg.svd(0.1 * gradient + 0.9 * means[i], full_matrices=False)
            s = s / s.norm()
            for _ in range(5):
                s = a * s + b * s**3 + c * s**5
            update = (u * s) @ vh * 0.2 * math.sqrt(WIDTH)
            now[i] = now[i] * (1 - 0.05 * 0.5) - 0.05 * update
    return [*(a - b for a, b in zip(now, start, strict=True)), norm]


def results() -> dict[str, Tensor]:
    """By name and number. Those of single operations are what PyTorch computes in float64."""
    tensors = [numbers(ROWS, WIDTH, seed=seed) for seed in (1, 2, 3)]
    found = {name: [operation(*tensors)] for name, operation in OPERATIONS.items()}
    found |= {name: differentiate(FORMULAS[name], shapes) for name, (_, shapes) in PARTS.items()}
    found |= {"AdamW": moved_by_adamw(), "Muon": moved_by_muon()}
    return {
        f"{name} {i}": value.detach().double().flatten().contiguous()
        for name, values in found.items()
        for i, value in enumerate(values)
    }


if __name__ == "__main__":
    save_file(results(), RESULTS)
