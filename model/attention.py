"""Causal self-attention: the mask, the formula step by step, and the module that uses it.

Promises: `fused_attention` and `explicit_attention` compute the same context to float tolerance;
the explicit one also returns every intermediate tensor. A `KVCache` allocates the memory for one
whole window at the start, and appending copies only what is new.

Axes in the shapes: `batch` sequences; `query` and `key` count the tokens that attend and the tokens
that are attended to (equal, unless earlier keys were cached); `head` query heads and `kv_head` key
and value heads, each `d_head` wide; `d_model` is the width of the residual stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from model.config import ModelConfig
from model.layers import POSITIONS, Dropout, RMSNorm

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, float], Tensor]
Edit = Callable[[Tensor], Tensor]  # such as of the context, "batch head query d_head"

PLAIN_CONTEXT = 512  # tokens, up to which plain products are faster in bfloat16 on CPUs


def causal_mask(
    query: int, key: int, device: torch.device | str = "cpu"
) -> Bool[Tensor, "query key"]:
    """Which keys each query may attend to (True): its own token and all earlier ones.

    The queries are the newest of the keys' tokens, so the mask is aligned bottom-right:

        2 queries, 4 keys     here           PyTorch's is_causal=True
                              T T T .        T . . .
                              T T T T        T T . .

    PyTorch's `is_causal` aligns top-left, which hides the newest tokens when keys are cached.

    Raises ValueError if there are more queries than keys: the first rows would have no key to
    attend to.
    """
    if query > key:
        raise ValueError(f"query: {query} queries need at least as many keys, but there are {key}")
    return torch.ones(query, key, dtype=torch.bool, device=device).tril(key - query)


def window_mask(
    query: int, key: int, window: int, device: torch.device | str = "cpu"
) -> Bool[Tensor, "query key"]:
    """`causal_mask` of only the newest `window` keys of each query, its own among them (sliding
    window attention, Beltagy et al. 2020, section 3.1). Raises as `causal_mask` does."""
    return causal_mask(query, key, device).triu(key - query - window + 1)


class AttentionSteps(NamedTuple):
    """Every tensor of the attention formula, in the order of computation."""

    query: Float[Tensor, "batch head query d_head"]
    key: Float[Tensor, "batch kv_head key d_head"]
    value: Float[Tensor, "batch kv_head key d_head"]
    scores: Float[Tensor, "batch head query key"]
    scaled: Float[Tensor, "batch head query key"]
    masked: Float[Tensor, "batch head query key"]
    weights: Float[Tensor, "batch head query key"]
    context: Float[Tensor, "batch head query d_head"]


def explicit_attention(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    value: Float[Tensor, "batch kv_head key d_head"],
    mask: Bool[Tensor, "*rows query key"],
    dropout: float = 0.0,
) -> AttentionSteps:
    """softmax(Q K^T / sqrt(d_head)) V (Vaswani et al. 2017, eq. 1), one step at a time.

    `mask` is True where a query may attend. The returned weights are those before dropout, so each
    row sums to one. A query that may attend to nothing has weights and context of zero, as in
    PyTorch's fused kernels: a softmax over no scores would be 0/0, and its NaN would spread to all
    gradients.
    """
    queries_per_key = query.shape[1] // key.shape[1]
    keys = key.repeat_interleave(queries_per_key, dim=1)
    values = value.repeat_interleave(queries_per_key, dim=1)

    scores = query @ keys.transpose(-2, -1)
    scaled = scores / math.sqrt(query.shape[-1])
    masked = scaled.where(mask, -math.inf)
    anything = mask.any(dim=-1, keepdim=True)
    weights = masked.where(anything, 0.0).softmax(dim=-1) * anything
    context = F.dropout(weights, dropout) @ values
    return AttentionSteps(query, key, value, scores, scaled, masked, weights, context)


def fused_attention(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    value: Float[Tensor, "batch kv_head key d_head"],
    mask: Bool[Tensor, "*rows query key"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "batch head query d_head"]:
    """The context of `explicit_attention`, from PyTorch's fused kernels, which do not return the
    weights; or from plain products, where these are faster. `mask` is causal by default."""
    n_query, n_key = query.shape[2], key.shape[2]
    is_bf16 = value.device.type == "cpu" and value.dtype == torch.bfloat16
    # Up to four times as fast, with its gradients.
    if is_bf16 and value.requires_grad and n_query == n_key <= PLAIN_CONTEXT:
        return _plain_attention(query, key, value, mask, dropout)
    is_causal = mask is None and bool(n_query == n_key)  # of symbols, in torch.export, a symbol
    # A single query is the newest token: it may attend to every key and needs no mask.
    if mask is None and not is_causal and n_query > 1:
        mask = causal_mask(n_query, n_key, query.device)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=is_causal,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def _plain_attention(
    query: Float[Tensor, "batch head token d_head"],
    key: Float[Tensor, "batch kv_head token d_head"],
    value: Float[Tensor, "batch kv_head token d_head"],
    mask: Bool[Tensor, "*rows token token"] | None,
    dropout: float,
) -> Float[Tensor, "batch head token d_head"]:
    """`fused_attention` from plain products."""
    if query.shape[1] != key.shape[1]:
        queries_per_key = query.shape[1] // key.shape[1]
        key = key.repeat_interleave(queries_per_key, dim=1)
        value = value.repeat_interleave(queries_per_key, dim=1)
    root = query.shape[-1] ** -0.25  # for both, so that neither the products nor the sums are large
    scaled = (query * root) @ (key * root).mT
    if mask is None:
        n = query.shape[2]
        weights = (scaled + scaled.new_full((n, n), -math.inf).triu_(1)).softmax(dim=-1)
    else:
        some = mask.any(dim=-1, keepdim=True)  # a row without keys has weights of zero
        weights = scaled.masked_fill(some & ~mask, -math.inf).softmax(dim=-1) * some
    return F.dropout(weights, dropout) @ value


class CausalSelfAttention(nn.Module):
    """Each token gathers values from itself and earlier tokens, in several heads in parallel.

    With n_heads=4 and n_kv_heads=2, each pair of adjacent query heads shares one key and value head
    (grouped-query attention, Ainslie et al. 2023):

        x (batch, token, d_model)
        |
        +-- query --- [ q0 | q1 | q2 | q3 ]      split into heads, each d_head wide
        |                \\   /     \\   /
        +-- key -----  [  k0   |   k1  ]         [q/k norm, rotary positions]
        +-- value ---  [  v0   |   v1  ]
                           |
             softmax(q k^T / sqrt(d_head)) v     for each query head
                           |
                 [ c0 | c1 | c2 | c3 ]           heads joined
                           |
        output ------------+                     (batch, token, d_model)

    `attend` is the function that computes the context from queries, keys, values, a mask (None:
    causal) and the dropout probability: the last of `attends`. `model.hooks` adds others, which
    record the weights.
    `edits` change the context, one after the other (model/hooks.py); there are none in training.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.d_head = d_head = config.d_head
        self.window = config.window
        dropout = config.attention_dropout
        self.dropout = config.dropout if dropout is None else dropout
        self.query = nn.Linear(config.d_model, config.n_heads * d_head, bias=config.bias)
        self.key = nn.Linear(config.d_model, config.n_kv_heads * d_head, bias=config.bias)
        self.value = nn.Linear(config.d_model, config.n_kv_heads * d_head, bias=config.bias)
        self.output = nn.Linear(config.n_heads * d_head, config.d_model, bias=config.bias)
        self.residual_dropout = Dropout(config.dropout)

        self.query_norm: nn.Module = nn.Identity()
        self.key_norm: nn.Module = nn.Identity()
        if config.qk_norm:
            self.query_norm = RMSNorm(d_head, eps=config.norm_eps)
            self.key_norm = RMSNorm(d_head, eps=config.norm_eps)
        self.position = POSITIONS[config.position].heads(config)

        self.attends: list[Attend] = [fused_attention]
        self.edits: list[Edit] = []

    @property
    def attend(self) -> Attend:
        return self.attends[-1]

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        start = 0 if cache is None else cache.length

        query = split_heads(self.query(x), self.d_head)
        key = split_heads(self.key(x), self.d_head)
        value = split_heads(self.value(x), self.d_head)

        query = self.position(self.query_norm(query), start)
        key = self.position(self.key_norm(key), start)
        if cache is not None:
            key, value = cache.append(key, value)

        mask = None  # causal
        if self.window is not None and self.window < key.shape[2]:
            mask = window_mask(query.shape[2], key.shape[2], self.window, x.device)
        dropout = self.dropout if self.training else 0.0
        context = self.attend(query, key, value, mask, dropout)
        context = apply_edits(self.edits, context)
        return self.residual_dropout(self.output(join_heads(context)))


def apply_edits(edits: Sequence[Edit], value: Tensor) -> Tensor:
    """The value that edits make of another, one after the other. Unlike hooks, which it does not
    look for, torch.compile sees that a list has changed."""
    for edit in edits:
        value = edit(value)
    return value


def split_heads(
    x: Float[Tensor, "batch token width"], d_head: int
) -> Float[Tensor, "batch head token d_head"]:
    """Split the last axis into heads of width `d_head`, and move them before the tokens; a view."""
    return x.unflatten(-1, (-1, d_head)).transpose(1, 2)


def join_heads(x: Float[Tensor, "batch head token d_head"]) -> Float[Tensor, "batch token width"]:
    """The inverse of `split_heads`."""
    return x.transpose(1, 2).flatten(2)


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

    def append(
        self,
        key: Float[Tensor, "batch kv_head new d_head"],
        value: Float[Tensor, "batch kv_head new d_head"],
    ) -> tuple[Keys, Keys]:
        """Store new keys and values and return views of all of them so far."""
        if len(key) != len(self.key):
            raise ValueError(f"cache: is for a batch of {len(self.key)}; {len(key)} were given")
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
        self.layers = [
            LayerCache(
                torch.empty(shape, device=device, dtype=dtype),
                torch.empty(shape, device=device, dtype=dtype),
            )
            for _ in range(config.n_layers)
        ]

    @property
    def length(self) -> int:
        """How many tokens are stored in all layers."""
        return min(layer.length for layer in self.layers)

    def begin(self, n_layers: int) -> int:
        """For a model of so many layers, which may have lost its last ones: remove what a call that
        was interrupted has stored in some of them; return the length."""
        del self.layers[n_layers:]
        length = self.length
        for layer in self.layers:
            layer.length = length
        return length

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
