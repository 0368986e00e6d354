"""Reading one token per sequence in memory that stays where it is, as a CUDA graph needs it.

A small model's step for one token is a hundred short kernels, which a GPU finishes sooner than the
host can launch them. A graph launches all of them at once. What a graph repeats has fixed shapes
and addresses: every step attends to the whole cache under a mask, and its position is a tensor.

This is used on GPUs alone, because a step also multiplies keys that are masked. On a CPU the same
step runs without a graph, and the tests compare it there with that of `model/`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from model import GPT, KVCache
from model.attention import Keys, LayerCache
from model.gpt import blocks_of

WARM_UP = 3  # runs before the capture, in which libraries allocate what they need
WORTHWHILE = 16  # new tokens; an estimate: the capture takes longer than it saves for fewer


class StaticLayer(LayerCache):
    """The memory of a layer of a `KVCache`, all of it; `mask` says which keys are there."""

    def __init__(self, layer: LayerCache, position: Int[Tensor, ""]) -> None:
        super().__init__(layer.key, layer.value)
        self.length: Int[Tensor, ""] = position  # type: ignore[assignment]

    def append(
        self,
        key: Float[Tensor, "batch kv_head 1 d_head"],
        value: Float[Tensor, "batch kv_head 1 d_head"],
    ) -> tuple[Keys, Keys]:
        """Store the key and value at the position and return views of the whole memory."""
        at = self.length.view(1)
        self.key.index_copy_(1, at, key.transpose(1, 2))
        self.value.index_copy_(1, at, value.transpose(1, 2))
        return self.key.transpose(1, 2), self.value.transpose(1, 2)


class StaticCache(KVCache):
    """The memory of a cache, with the position as a tensor on the device."""

    def __init__(self, cache: KVCache, position: Int[Tensor, ""]) -> None:
        self.layers = [StaticLayer(layer, position) for layer in cache.layers]


class StaticStep:
    """Reads one more token of every sequence whose earlier tokens are in `cache`: on a GPU, by a
    CUDA graph that is captured at the first call.

    Between two tokens, the weights may change in place, but not be replaced by others.
    """

    def __init__(self, model: GPT, cache: KVCache) -> None:
        self.model, self.cache = model, cache
        self.modules = [*model.modules()]
        self.attentions = [block.attention for block in blocks_of(model)]
        memory = cache.layers[0].key
        self.tokens = torch.zeros(len(memory), 1, dtype=torch.int64, device=memory.device)
        self.position = torch.zeros((), dtype=torch.int64, device=memory.device)
        self.places = torch.arange(memory.shape[1], device=memory.device)
        self.static = StaticCache(cache, self.position)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.hidden: Tensor | None = None  # what the graph computes

    @property
    def is_possible(self) -> bool:
        """Whether nobody records or edits what the model computes, as no graph would, and no
        autocast makes copies of the weights, which a graph would read after it has freed them."""
        return not (
            torch.is_autocast_enabled(self.tokens.device.type)
            or any(each.edits or len(each.attends) > 1 for each in self.attentions)
            or any(each._forward_hooks or each._forward_pre_hooks for each in self.modules)
        )

    def __call__(self, tokens: Int[Tensor, "batch 1"]) -> Float[Tensor, "batch 1 d_model"]:
        """As `model.hidden(tokens, cache)`. On a GPU, the result is valid until the next call."""
        self.tokens.copy_(tokens)
        self.position.fill_(self.cache.length)
        if self.tokens.device.type != "cuda":
            hidden = self._run()
        else:
            if self.graph is None:
                self._capture()
            assert self.graph is not None
            assert self.hidden is not None
            self.graph.replay()
            hidden = self.hidden
        for layer in self.cache.layers:
            layer.length += 1
        return hidden

    def _run(self) -> Float[Tensor, "batch 1 d_model"]:
        mask = self.places <= self.position
        if self.model.config.window is not None:
            mask &= self.places > self.position - self.model.config.window
        for layer in self.static.layers:
            layer.mask = mask[None]
        return self.model.hidden(self.tokens, self.static)

    def _capture(self) -> None:
        """Record the kernels of a step. All runs store the same keys at the same place."""
        with torch.cuda.device(self.tokens.device):
            # Its own, since what libraries allocate for a stream is freed with the graph.
            stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP):
                    self._run()
            current.wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            # Other threads, such as that of NCCL, may use the GPU meanwhile.
            with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
                self.hidden = self._run()
