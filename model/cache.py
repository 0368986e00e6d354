"""Keys and values of earlier tokens, cached for the tokens that follow.

Promises: memory for one whole window is allocated at the start; appending copies only what is new.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from model.config import ModelConfig

Keys = Float[Tensor, "batch kv_head key d_head"]


class LayerCache:
    """The keys and values of one layer; the first `length` positions are filled.

    The heads of a token are stored side by side, as the layer computes them: appending then copies
    one stretch of memory.
    """

    def __init__(
        self,
        key: Float[Tensor, "batch context_length kv_head d_head"],
        value: Float[Tensor, "batch context_length kv_head d_head"],
    ) -> None:
        self.key, self.value = key, value
        self.length = 0
        # Which keys the new tokens attend to; None: the layer decides.
        self.mask: Bool[Tensor, "query key"] | None = None

    def append(
        self,
        key: Float[Tensor, "batch kv_head new d_head"],
        value: Float[Tensor, "batch kv_head new d_head"],
    ) -> tuple[Keys, Keys]:
        """Store new keys and values and return views of all of them so far."""
        end = self.length + key.shape[2]
        self.key[:, self.length : end] = key.transpose(1, 2)
        self.value[:, self.length : end] = value.transpose(1, 2)
        self.length = end
        return self.key[:, :end].transpose(1, 2), self.value[:, :end].transpose(1, 2)


class KVCache:
    """One `LayerCache` per layer, for `batch` sequences of equal length."""

    def __init__(
        self,
        config: ModelConfig,
        batch: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        shape = (batch, config.context_length, config.n_kv_heads, config.d_head)
        # Not empty: a static step also multiplies values that are masked, and 0 times NaN is NaN.
        self.layers = [
            LayerCache(
                torch.zeros(shape, device=device, dtype=dtype),
                torch.zeros(shape, device=device, dtype=dtype),
            )
            for _ in range(config.n_layers)
        ]

    @property
    def length(self) -> int:
        """How many tokens are stored."""
        return self.layers[0].length

    def repeat(self, times: int) -> None:
        """Repeat every sequence `times` times in a row."""
        for layer in self.layers:
            layer.key, layer.value = (
                tensor.repeat_interleave(times, dim=0) for tensor in (layer.key, layer.value)
            )

    def clear(self) -> None:
        """Remove all tokens; the memory stays allocated."""
        for layer in self.layers:
            layer.length = 0
