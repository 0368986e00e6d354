"""The loss over batches of tokens, each target counted once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn


@dataclass(frozen=True)
class Measurement:
    """Sums over targets: the loss in `nats`, the number of `tokens` and of their `bytes`, and their
    information in `bits`, if it is known."""

    nats: float
    tokens: int
    bytes: int
    bits: float | None = None

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens

    @property
    def bpb(self) -> float:
        """Bits per byte, which unlike the loss per token does not depend on the tokenizer."""
        return self.nats / math.log(2) / self.bytes

    @property
    def floor_bpb(self) -> float | None:
        """The bits per byte that no model can beat on these tokens."""
        return None if self.bits is None else self.bits / self.bytes


@torch.no_grad()
def measure(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    token_bytes: Int[Tensor, " vocab"],
    device: torch.device,
    autocast: AbstractContextManager,
) -> Measurement:
    """The model's loss over the targets of `batches`, without dropout. Targets of -100 are not
    scored.

    `token_bytes` is the number of bytes of each token.
    """
    was_training = model.training
    model.eval()
    nats, tokens, n_bytes = 0.0, 0, 0
    try:
        for inputs, targets in batches:
            inputs, targets = inputs.to(device), targets.to(device)
            with autocast:
                loss = model(inputs, targets=targets, reduction="sum")
            nats += loss.item()  # in float64: a long split has millions of terms
            scored = targets[targets >= 0]
            tokens += scored.numel()
            n_bytes += int(token_bytes[scored].sum())
    finally:
        model.train(was_training)
    return Measurement(nats, tokens, n_bytes)


@torch.no_grad()
def largest_activations(
    model: nn.Module, inputs: Int[Tensor, "batch query"], autocast: AbstractContextManager
) -> dict[str, float]:
    """The largest absolute output of each part of the model (its children, and the members of its
    lists), by name; NaN where an output has one. The model reads one sequence at a time, since the
    logits of a batch can need more memory than a step in training."""
    largest: dict[str, Tensor] = {}

    def watch(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        def update(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            found = output.abs().max()
            largest[name] = torch.maximum(found, largest.get(name, found))

        return update

    handles = [
        module.register_forward_hook(watch(name))
        for name, module in model.named_modules()
        if re.fullmatch(r"\w+(\.\d+)?", name) and not isinstance(module, nn.ModuleList)
    ]
    try:
        with autocast:
            for row in inputs.split(1):
                model(row)
    finally:
        for handle in handles:
            handle.remove()
    return {name: value.item() for name, value in largest.items()}
