"""Keys and values that were computed once, kept for the tokens that follow.

Promises: room for one whole window is reserved at the start; appending copies only what is new.
Knows nothing of how the tokens are chosen or of what happens when the window is full.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from model.config import ModelConfig

Keys = Float[Tensor, "batch kv_head key d_head"]
Values = Float[Tensor, "batch kv_head key d_head"]


class LayerCache:
    """The keys and values of one layer; the first `length` positions are filled."""

    def __init__(
        self,
        key: Float[Tensor, "batch kv_head context_length d_head"],
        value: Float[Tensor, "batch kv_head context_length d_head"],
    ) -> None:
        self.key, self.value = key, value
        self.length = 0

    def append(
        self,
        key: Float[Tensor, "batch kv_head new d_head"],
        value: Float[Tensor, "batch kv_head new d_head"],
    ) -> tuple[
        Float[Tensor, "batch kv_head key d_head"], Float[Tensor, "batch kv_head key d_head"]
    ]:
        """Stores what is new and returns all keys and values so far, as views."""
        end = self.length + key.shape[2]
        self.key[:, :, self.length : end] = key
        self.value[:, :, self.length : end] = value
        self.length = end
        return self.key[:, :, :end], self.value[:, :, :end]


class KVCache:
    """One `LayerCache` per layer, for `batch` sequences of equal length."""

    def __init__(
        self,
        config: ModelConfig,
        batch: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        shape = (batch, config.kv_heads, config.context_length, config.head_width)
        self.layers = [
            LayerCache(
                torch.empty(shape, device=device, dtype=dtype),
                torch.empty(shape, device=device, dtype=dtype),
            )
            for _ in range(config.n_layers)
        ]

    @property
    def length(self) -> int:
        """How many tokens are stored."""
        return self.layers[0].length

    def clear(self) -> None:
        """Forgets every token and keeps the memory."""
        for layer in self.layers:
            layer.length = 0
