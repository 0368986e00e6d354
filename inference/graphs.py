"""Reading one token after the other on a GPU, as a CUDA graph.

A token takes some hundred small kernels. For a small model it takes longer to launch them than to
run them; a graph launches all of them at once.

Promises: the hidden states that the model computes with its cache, to float tolerance.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from model import GPT, KVCache, StaticKVCache, fused_attention, is_sharded

GRAPHS = "cuda"  # the devices that have them
WARM_UP = 3  # calls before a capture, in which libraries choose kernels and take memory
WORTHWHILE = 16  # tokens: a capture takes about as long as reading a few


def is_capturable(model: GPT) -> bool:
    """Whether reading a token runs the same kernels at every position, and nothing else: not if
    weights are gathered from other ranks, if documents are masked, or while attention is recorded
    or ablated."""
    return not (is_sharded(model) or model.config.document_mask) and all(
        block.attention.attend is fused_attention  # type: ignore[union-attr]
        for block in model.blocks
    )


class TokenReader:
    """Appends a token to every sequence of a cache that has room for it.

    The weights may change between two tokens, but not be replaced by others.
    """

    def __init__(self, model: GPT, cache: KVCache) -> None:
        self.model, self.cache, self.static = model, cache, StaticKVCache(cache)
        self.token = torch.zeros(cache.ends.shape[0], 1, device=cache.ends.device, dtype=torch.long)
        self.graph = self._capture() if cache.ends.is_cuda else None

    def __call__(self, token: Int[Tensor, "batch 1"]) -> Float[Tensor, "batch d_model"]:
        """The input of `unembedding` for the next token. The next call overwrites it."""
        self.static.position.fill_(self.cache.length)
        self.token.copy_(token)
        if self.graph is None:
            self._compute()
        else:
            self.graph.replay()
        self.cache.advance()
        return self.last

    def _compute(self) -> None:
        self.last = self.model.hidden(self.token, self.static)[:, -1]

    def _capture(self) -> torch.cuda.CUDAGraph:
        self.static.position.fill_(self.cache.length)  # what is written there will be overwritten
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # On the stream of the warm-up, whose libraries are ready. Other threads may use the GPU
        # meanwhile, such as one that writes a checkpoint.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self._compute()
        return graph
