"""Decoding one token at a time with a CUDA graph.

A token takes a few hundred small kernels. For a small model it takes longer to launch them than to
run them; a graph launches all of them at once.

Promises: the hidden states that the model computes with its cache, to float tolerance.
"""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from model import GPT, KVCache, StaticKVCache, fused_attention, is_sharded
from model.block import Block

GRAPHS = "cuda"  # the devices that have them
WARM_UP = 3  # calls before a capture, in which libraries choose kernels and take memory
WORTHWHILE = 16  # tokens: a capture takes about as long as reading a few


def is_capturable(model: GPT) -> bool:
    """Whether reading a token runs the same kernels at every position, and nothing else: not if
    weights are gathered from other ranks, if documents are masked, while attention is recorded or
    heads or MLPs are ablated, or under autocast, which frees its copies of the weights."""
    if is_sharded(model) or model.config.document_mask:
        return False
    if torch.is_autocast_enabled(model.token_embedding.weight.device.type):
        return False
    blocks = cast("list[Block]", model.blocks)
    return all(
        each.attention.attend is fused_attention and not each.mlp._forward_hooks for each in blocks
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
        self.static.length.fill_(self.cache.length)
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
        self.static.length.fill_(self.cache.length)  # what is written there will be overwritten
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
