"""Dropout that is also fast on CPUs.

It has the distribution of PyTorch's dropout. On CPUs it draws other elements than PyTorch does, and
rounds the probability to a multiple of 1/65536.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.compiler import is_compiling

LEVELS = 1 << 16  # of a random 16-bit integer


class Dropout(nn.Dropout):
    """Zero with probability p, in training, and otherwise x / (1 - p) (Srivastava et al. 2014).

    On most CPUs, PyTorch draws one random number of 64 bits per element, one after the other, which
    in a small model takes longer than attention. Here such a number decides on four elements.
    """

    def __init__(self, p: float) -> None:
        super().__init__(p)

    def forward(self, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        dropped = round(self.p * LEVELS)
        is_plain = not self.training or dropped in (0, LEVELS)
        if is_plain or x.device.type != "cpu" or is_compiling():
            return super().forward(x)
        numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
        levels = numbers.view(torch.int16)[: x.numel()].view(x.shape)
        keep = (levels >= dropped - LEVELS // 2).to(x.dtype)
        return x * keep.mul_(LEVELS / (LEVELS - dropped))
