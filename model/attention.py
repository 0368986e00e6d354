"""Causal self-attention: the mask, the formula step by step, and the module that uses it.

Promises: `fused_attention` and `explicit_attention` give the same context to float tolerance; the
explicit one also shows every step on the way. Knows nothing of who looks at the weights.

The letters in the shapes: `batch` sequences; `query` and `key` count the tokens that ask and the
tokens that are asked (equal, unless earlier keys were cached); `head` heads of queries and
`kv_head` heads of keys and values, each `d_head` wide; `d_model` is the residual stream's width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from model.cache import LayerCache
from model.config import ModelConfig
from model.position import NoPosition, Rotary


def causal_mask(
    query: int, key: int, device: torch.device | str = "cpu"
) -> Bool[Tensor, "query key"]:
    """Which keys each query may attend to (True): its own token and all before it.

    The queries are the last of the keys' tokens, so the diagonal ends in the bottom-right corner:

        2 queries, 4 keys     here           PyTorch's is_causal=True
                              T T T .        T . . .
                              T T T T        T T . .

    PyTorch's `is_causal` aligns top-left, which with cached keys hides the newest tokens.

    Raises ValueError if there are more queries than keys: the first rows could attend to nothing,
    and their softmax would be NaN.
    """
    if query > key:
        raise ValueError(f"query: {query} queries need at least as many keys, not {key}")
    return torch.ones(query, key, dtype=torch.bool, device=device).tril(key - query)


class AttentionSteps(NamedTuple):
    """Every tensor of the attention formula, in the order in which they arise."""

    scores: Float[Tensor, "batch head query key"]
    scaled: Float[Tensor, "batch head query key"]
    masked: Float[Tensor, "batch head query key"]
    weights: Float[Tensor, "batch head query key"]
    context: Float[Tensor, "batch head query d_head"]


def explicit_attention(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    value: Float[Tensor, "batch kv_head key d_head"],
    mask: Bool[Tensor, "query key"],
    dropout: float = 0.0,
) -> AttentionSteps:
    """softmax(Q K^T / sqrt(d_head)) V (Vaswani et al. 2017, eq. 1), one step at a time.

    `mask` is True where a query may attend. Dropout acts between weights and context, so the
    returned weights are whole: each row sums to one.
    """
    queries_per_key = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(queries_per_key, dim=1)
    value = value.repeat_interleave(queries_per_key, dim=1)

    scores = query @ key.transpose(-2, -1)
    scaled = scores / math.sqrt(query.shape[-1])
    masked = scaled.masked_fill(~mask, -math.inf)
    weights = masked.softmax(dim=-1)
    context = F.dropout(weights, dropout) @ value
    return AttentionSteps(scores, scaled, masked, weights, context)


def fused_attention(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    value: Float[Tensor, "batch kv_head key d_head"],
    dropout: float = 0.0,
) -> Float[Tensor, "batch head query d_head"]:
    """The context of causal `explicit_attention`, by PyTorch's fused kernels: no weights to see."""
    n_query, n_key = query.shape[2], key.shape[2]
    square = n_query == n_key
    # A single query is the newest token: it may attend to every key, and needs no mask.
    mask = None if square or n_query == 1 else causal_mask(n_query, n_key, query.device)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=square,
        enable_gqa=query.shape[1] != key.shape[1],
    )


class CausalSelfAttention(nn.Module):
    """Each token gathers values from the tokens before it, in several heads at once.

    With n_heads=4 and n_kv_heads=2, two neighbouring query heads share one head of keys and values
    (grouped-query attention, Ainslie et al. 2023):

        x (batch, token, d_model)
        |
        +-- query --- [ q0 | q1 | q2 | q3 ]      split into heads, each d_head wide
        |                \\   /     \\   /
        +-- key -----  [  k0   |   k1  ]         [q/k norm, rotary positions]
        +-- value ---  [  v0   |   v1  ]
                           |
             softmax(q k^T / sqrt(d_head)) v     once per query head
                           |
                 [ c0 | c1 | c2 | c3 ]           heads joined
                           |
        output ------------+                     (batch, token, d_model)

    `attend` is the function that turns queries, keys and values into context; whoever wants to
    see the weights swaps it (see `model.recording`).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.d_head = d_head = config.head_width
        self.dropout = config.dropout
        self.query = nn.Linear(config.d_model, config.n_heads * d_head, bias=config.bias)
        self.key = nn.Linear(config.d_model, config.kv_heads * d_head, bias=config.bias)
        self.value = nn.Linear(config.d_model, config.kv_heads * d_head, bias=config.bias)
        self.output = nn.Linear(config.n_heads * d_head, config.d_model, bias=config.bias)
        self.residual_dropout = nn.Dropout(config.dropout)

        self.query_norm: nn.Module = nn.Identity()
        self.key_norm: nn.Module = nn.Identity()
        if config.qk_norm:
            self.query_norm = HeadNorm(d_head, eps=config.norm_eps)
            self.key_norm = HeadNorm(d_head, eps=config.norm_eps)
        self.position: nn.Module = NoPosition()
        if config.position == "rotary":
            self.position = Rotary(config.context_length, d_head, config.rope_theta)

        self.attend: Callable[[Tensor, Tensor, Tensor, float], Tensor] = fused_attention

    def forward(
        self, x: Float[Tensor, "batch query d_model"], cache: LayerCache | None = None
    ) -> Float[Tensor, "batch query d_model"]:
        start = 0 if cache is None else cache.length

        query = split_heads(self.query(x), self.d_head)
        key = split_heads(self.key(x), self.d_head)
        value = split_heads(self.value(x), self.d_head)

        query = self.position(self.query_norm(query), start)
        key = self.position(self.key_norm(key), start)
        if cache is not None:
            key, value = cache.append(key, value)

        context = self.attend(query, key, value, self.dropout if self.training else 0.0)
        return self.residual_dropout(self.output(join_heads(context)))


class HeadNorm(nn.RMSNorm):
    """RMSNorm over each head, in the precision of the head.

    Under autocast the queries and keys are bfloat16 and the gain is not; PyTorch's own module then
    warns and leaves its fused kernel.
    """

    def forward(self, x: Float[Tensor, "*axes d_head"]) -> Float[Tensor, "*axes d_head"]:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def split_heads(
    x: Float[Tensor, "batch token width"], d_head: int
) -> Float[Tensor, "batch head token d_head"]:
    """Cuts the last axis into heads of `d_head` and puts the head before the token; a view."""
    return x.unflatten(-1, (-1, d_head)).transpose(1, 2)


def join_heads(x: Float[Tensor, "batch head token d_head"]) -> Float[Tensor, "batch token width"]:
    """Undoes `split_heads`."""
    return x.transpose(1, 2).flatten(2)
