"""The whole model: tokens in, logits over the next token out.

Promises: causal (a logit depends on no later token); the initial weights depend only on torch's
random state and the config. Knows nothing of text, of training or of sampling.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.attention import CausalSelfAttention, document_mask
from model.block import Block
from model.cache import AnyKVCache, StaticKVCache
from model.config import ModelConfig
from model.dropout import Dropout
from model.loss import linear_cross_entropy
from model.norm import build_norm
from model.position import LearnedPosition, Rotary, Start, build_position
from model.sharding import own_rows

# Of token embeddings and learned positions, when training begins.
EMBEDDING_STD = 0.5


class GPT(nn.Module):
    """A decoder-only transformer over `vocab_size` tokens.

    end: the token that ends a document; only `config.document_mask` needs it, and raises ValueError
        without it.
    is_sharded: the parameters stay on the meta device, so that `fully_shard` can divide them before
        `allocate` gives them memory, and `initialise` the values that they have otherwise. Building
        takes the memory of one block or embedding at a time.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        end: int | None = None,
        is_sharded: bool = False,
    ) -> None:
        super().__init__()
        if config.document_mask and end is None:
            raise ValueError(
                "document_mask: the tokenizer has no token that ends a document; give false, or "
                "choose another tokenizer"
            )
        self.config = config
        self.vocab_size = vocab_size
        self.end = end
        # The constructors draw from torch's random state, so they run also where nothing is kept.
        place = "meta" if is_sharded else None
        self.token_embedding = nn.Embedding(vocab_size, config.d_model).to(place)
        self.position = build_position(config, acts_on="stream").to(place)
        self.embedding_dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config).to(place) for _ in range(config.n_layers))
        self.final_norm = build_norm(config).to(place)
        self.unembedding = nn.Linear(config.d_model, vocab_size, bias=False).to(place)
        if config.tied_embeddings:
            self.unembedding.weight = self.token_embedding.weight
        if not is_sharded:
            self.initialise()

    def forward(
        self,
        tokens: Int[Tensor, "batch query"],
        cache: AnyKVCache | None = None,
        targets: Int[Tensor, "batch query"] | None = None,
        reduction: str = "mean",
    ) -> Float[Tensor, "batch query vocab"] | Float[Tensor, ""]:
        """Logits of the next token at every position; raises as `hidden` does.

        With `targets`, the loss of these tokens, as `linear_cross_entropy` gives it: in less memory
        than from the logits.
        """
        hidden = self.hidden(tokens, cache)
        if targets is None:
            return self.unembedding(hidden)
        return linear_cross_entropy(hidden, self.unembedding.weight, targets, reduction)

    def hidden(
        self, tokens: Int[Tensor, "batch query"], cache: AnyKVCache | None = None
    ) -> Float[Tensor, "batch query d_model"]:
        """The residual stream after the final norm: the input of `unembedding`.

        With a cache, `tokens` continue the cached ones and are added to the cache. With a
        `StaticKVCache`, the position of the token is not checked.

        Raises ValueError if the tokens (with the cached ones) exceed the context length, and, in
        eager mode on a CPU, for an id outside the vocabulary (elsewhere the check would force a
        synchronisation).
        """
        start = 0 if cache is None else cache.length
        if not isinstance(start, Tensor) and start + tokens.shape[1] > self.config.context_length:
            raise ValueError(
                f"tokens: {start + tokens.shape[1]} tokens exceed "
                f"context_length={self.config.context_length}; give fewer"
            )
        x = self.embed(tokens, start)
        mask = self.mask(tokens, cache)
        for index, block in enumerate(self.blocks):
            x = block(x, None if cache is None else cache.layers[index], mask)
        return self.final_norm(x)

    def mask(
        self, tokens: Int[Tensor, "batch query"], cache: AnyKVCache | None = None
    ) -> Bool[Tensor, "_batch 1 query key"] | None:
        """Which keys the tokens may attend to (True), in all blocks; None: those up to their own
        place."""
        if not self.config.document_mask:
            return None if cache is None else cache.mask
        assert self.end is not None and not isinstance(cache, StaticKVCache)
        ends = torch.eq(tokens, self.end)
        return document_mask(ends if cache is None else cache.append_ends(ends), tokens.shape[1])

    def embed(
        self, tokens: Int[Tensor, "batch query"], start: Start = 0
    ) -> Float[Tensor, "batch query d_model"]:
        """The residual stream before the first block, of tokens from position `start` on; raises as
        `hidden` does for an id."""
        try:
            x = self.token_embedding(tokens)
        except IndexError:
            raise ValueError(
                f"tokens: ids run from {tokens.min()} to {tokens.max()}; "
                f"the vocabulary has ids 0 to {self.vocab_size - 1}"
            ) from None
        return self.embedding_dropout(self.position(x, start))

    def allocate(self, device: torch.device) -> None:
        """Give a model that was built on the meta device its memory. The values of its parameters
        are undefined."""
        self.to_empty(device=device)
        if self.config.tied_embeddings:  # `to_empty` makes two matrices of one
            self.unembedding.weight = self.token_embedding.weight
        for module in self.modules():
            if isinstance(module, Rotary):
                module.cos, module.sin = (each.to(device) for each in module.tables())

    def checkpoint_activations(self) -> None:
        """Keep only the inputs of blocks for the backward pass, which computes each block again,
        with the same dropout: less memory, more time (Chen et al. 2016). In evaluation, and with a
        cache, nothing changes."""
        for block in self.blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)

    @property
    def n_parameters(self) -> int:
        """The number of parameters; a matrix that is used twice (tied embeddings) counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations of one training step (forward and backward), per token.

        6 N + 12 L H Q T (Chowdhery et al. 2022, PaLM, appendix B), where N is the number of weights
        in matrix products (all linear layers including the unembedding; no lookups, norms or
        biases), L layers, H heads, Q = d_head and T the context length. All T x T attention scores
        are counted, although half of them are masked.
        """
        config = self.config
        linear = sum(
            module.weight.numel() for module in self.modules() if isinstance(module, nn.Linear)
        )
        width = config.n_heads * config.d_head
        return 6 * linear + 12 * config.n_layers * width * config.context_length

    @torch.no_grad()
    def initialise(self) -> None:
        """Random weights, normal with mean 0; biases are 0, gains 1. Of a sharded model, every rank
        draws each whole matrix and keeps its rows.

        Matrices have std 0.02, and those that write to the residual stream std 0.02 / sqrt(2
        n_layers), so that its variance does not grow with depth (Radford et al. 2019, section 2.3).
        Two things differ from GPT-2, since a small model then learns far sooner to copy words
        (benchmarks/NOTES.md):

        - Embeddings have std `EMBEDDING_STD`. Where they are also the output matrix, the gain of
          the final norm is so much smaller, and the first logits are those of std 0.02.
        - Value matrices have std 1 / sqrt(d_model), and a layer's output matrix begins as their
          transpose: what a head reads, it passes on.
        """
        std, layers = 0.02, math.sqrt(2 * self.config.n_layers)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(0 if name.endswith("bias") else 1)
        for name, module in self.named_modules():
            if isinstance(module, nn.Embedding | LearnedPosition):
                _assign(module.weight, _normal(module.weight, EMBEDDING_STD))
            if isinstance(module, nn.Linear) and module.weight is not self.token_embedding.weight:
                is_down = name.endswith("mlp.down")
                _assign(module.weight, _normal(module.weight, std / layers if is_down else std))
        if self.config.tied_embeddings:
            self.final_norm.get_parameter("weight").fill_(std / EMBEDDING_STD)
        for module in self.modules():
            if isinstance(module, CausalSelfAttention):
                value = _normal(module.value.weight, 1 / math.sqrt(self.config.d_model))
                _assign(module.value.weight, value)
                heads = value.unflatten(0, (self.config.n_kv_heads, -1))
                heads = heads.repeat_interleave(self.config.n_heads // len(heads), dim=0)
                _assign(module.output.weight, heads.flatten(0, 1).T / layers)


def _normal(parameter: Tensor, std: float) -> Tensor:
    """A tensor of the parameter's full shape."""
    return torch.empty(parameter.shape, dtype=parameter.dtype).normal_(std=std)


def _assign(parameter: Tensor, values: Tensor) -> None:
    own, rows = own_rows(parameter)
    own.copy_(values[rows])
