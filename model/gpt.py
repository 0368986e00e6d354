"""The whole model: tokens in, logits over the next token out.

Promises: causal (a logit depends on no later token); the initial weights depend only on torch's
random state and the config; a norm acts on the input of a branch, never on the stream itself.
Knows nothing of text, of training or of sampling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from common.errors import check_range
from model.attention import CausalSelfAttention, Edit, KVCache, LayerCache, apply_edits
from model.config import ModelConfig
from model.layers import MLPS, NORMS, POSITIONS, Dropout, LearnedPosition
from model.loss import linear_cross_entropy, softcap

# Of token embeddings and learned positions, when training begins.
EMBEDDING_STD = 0.5


class Block(nn.Module):
    """x + attention(norm(x)), and then x + mlp(norm(x)).

    stream_edits, mlp_edits: change x, and what the MLP adds (see `model.hooks.edit`).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = NORMS[config.norm](config)
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = NORMS[config.norm](config)
        self.mlp = MLPS[config.mlp](config)
        self.stream_edits: list[Edit] = []
        self.mlp_edits: list[Edit] = []

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        x = apply_edits(self.stream_edits, x)
        x = x + self.attention(self.attention_norm(x), cache)
        return self.with_mlp(x)

    def with_mlp(
        self, x: Float[Tensor, "batch query d_model"]
    ) -> Float[Tensor, "batch query d_model"]:
        """The residual stream after the MLP, given that before it."""
        return x + apply_edits(self.mlp_edits, self.mlp(self.mlp_norm(x)))


def blocks_of(model: nn.Module) -> list[Block]:
    """The blocks of a model, in the order of its layers."""
    return [module for module in model.modules() if isinstance(module, Block)]


def block_of(model: nn.Module, layer: int, head: int = 0) -> Block:
    """The block of a layer. Raises ValueError for a layer or head that the model does not have."""
    blocks = blocks_of(model)
    check_range("layer", layer, 0, len(blocks) - 1)
    attention = blocks[layer].attention
    check_range("head", head, 0, attention.query.out_features // attention.d_head - 1)
    return blocks[layer]


class GPT(nn.Module):
    """A decoder-only transformer over `vocab_size` tokens."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.token_embedding = nn.Embedding(vocab_size, config.d_model)
        self.position = POSITIONS[config.position].embeddings(config)
        self.embedding_dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.stream_edits: list[Edit] = []  # of the residual stream after the last block
        self.final_norm = NORMS[config.norm](config)
        self.unembedding = nn.Linear(config.d_model, vocab_size, bias=False)
        if config.tied_embeddings:
            self.unembedding.weight = self.token_embedding.weight
        self.init_weights()

    def forward(
        self,
        tokens: Int[Tensor, "batch query"],
        cache: KVCache | None = None,
        targets: Int[Tensor, "batch query"] | None = None,
        reduction: str = "mean",
    ) -> Float[Tensor, "batch query vocab"] | Float[Tensor, ""]:
        """Logits of the next token at every position; raises as `hidden` does.

        With `targets`, the loss of these tokens, as `linear_cross_entropy` returns it: in less
        memory than from the logits.
        """
        hidden = self.hidden(tokens, cache)
        if targets is None:
            return self.logits(hidden)
        weight, cap = self.unembedding.weight, self.config.logit_softcap
        return linear_cross_entropy(hidden, weight, targets, reduction, cap)

    def logits(self, hidden: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes vocab"]:
        """The logits of what `hidden` returns."""
        return softcap(self.unembedding(hidden), self.config.logit_softcap)

    def hidden(
        self, tokens: Int[Tensor, "batch query"], cache: KVCache | None = None
    ) -> Float[Tensor, "batch query d_model"]:
        """The residual stream after the final norm: the input of `unembedding`.

        With a cache, `tokens` continue the cached ones and are added to the cache.

        Raises ValueError if the tokens (with the cached ones) exceed the context length, and in
        eager mode on a CPU for an id outside the vocabulary (elsewhere the check would force a
        synchronisation).
        """
        check_tokens(tokens, 2)
        start = 0 if cache is None else cache.begin(len(self.blocks))
        if isinstance(start, int) and start + tokens.shape[1] > self.config.context_length:
            raise ValueError(
                f"tokens: {start + tokens.shape[1]} tokens exceed "
                f"context_length={self.config.context_length}; give fewer"
            )
        x = self.embed(tokens, start)
        for index, block in enumerate(self.blocks):
            x = block(x, None if cache is None else cache.layers[index])
        return self.final_norm(apply_edits(self.stream_edits, x))

    def embed(
        self, tokens: Int[Tensor, "batch query"], start: int = 0
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

    @torch.no_grad()
    def init_weights(self) -> None:
        """Random weights, normal with mean 0; biases are 0, gains 1.

        Matrices have std 0.02, and the last ones of MLPs std 0.02 / sqrt(2 n_layers), so that the
        variance of the residual stream does not grow with depth (Radford et al. 2019, section 2.3).
        Two things differ from GPT-2, since a small model then learns far sooner to copy words
        (benchmarks/NOTES.md):

        - Embeddings have std `EMBEDDING_STD`. Where they are also the output matrix, the gain of
          the final norm is so much smaller, and the first logits are those of std 0.02.
        - Value matrices have std 1 / sqrt(d_model), and a layer's output matrix begins as their
          transpose, divided by sqrt(2 n_layers): a head begins by passing on what it reads.
        """
        std, depth = 0.02, math.sqrt(2 * self.config.n_layers)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(0 if name.endswith("bias") else 1)
        for name, module in self.named_modules():
            if isinstance(module, nn.Embedding | LearnedPosition):
                module.weight.normal_(std=EMBEDDING_STD)
            if isinstance(module, nn.Linear) and module.weight is not self.token_embedding.weight:
                is_down = name.endswith("mlp.down")
                module.weight.normal_(std=std / depth if is_down else std)
        if self.config.tied_embeddings:
            self.final_norm.get_parameter("weight").fill_(std / EMBEDDING_STD)
        for module in self.modules():
            if isinstance(module, CausalSelfAttention):
                value = module.value.weight.normal_(std=1 / math.sqrt(self.config.d_model))
                heads = value.unflatten(0, (self.config.n_kv_heads, -1))
                heads = heads.repeat_interleave(self.config.n_heads // len(heads), dim=0)
                module.output.weight.copy_(heads.flatten(0, 1).T / depth)


def check_tokens(tokens: Any, axes: int) -> None:
    """Raise ValueError unless these can be the tokens of one text (one axis), or of a batch."""
    if not isinstance(tokens, Tensor) or tokens.is_floating_point():
        raise ValueError("tokens: are no ids; give a Tensor of whole numbers")
    if tokens.ndim != axes or (axes == 1 and not len(tokens)):
        wanted = "those of one text: one axis" if axes == 1 else "a batch of texts: two axes"
        raise ValueError(f"tokens: have the shape {[*tokens.shape]}; give {wanted}")


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model in eval mode, and restore the mode of each of its modules on exit."""
    in_training = [module for module in model.modules() if module.training]
    for module in in_training:
        module.training = False
    try:
        yield
    finally:
        for module in in_training:
            module.training = True
