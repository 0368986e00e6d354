"""Compare attention with explicit loops."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model.attention import causal_mask, explicit_attention, fused_attention, window_mask
from tests.conftest import every_device


def loop_head(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention of one head, query by query. The queries are those of the last tokens."""
    contexts = []
    for i, query in enumerate(queries):
        n_seen = len(keys) - len(queries) + i + 1
        scores = torch.stack([query @ key for key in keys[:n_seen]]) / math.sqrt(len(query))
        weights = scores.exp() / scores.exp().sum()
        contexts.append((weights[:, None] * values[:n_seen]).sum(0))
    return torch.stack(contexts)


def random_heads(batch, heads, kv_heads, n_query, n_key, d_head):
    return (
        torch.randn(batch, heads, n_query, d_head),
        torch.randn(batch, kv_heads, n_key, d_head),
        torch.randn(batch, kv_heads, n_key, d_head),
    )


sizes = st.tuples(
    st.integers(1, 3),  # batch
    st.sampled_from([(1, 1), (2, 2), (4, 2), (4, 1), (6, 3)]),  # heads, kv_heads
    st.integers(1, 6),  # queries
    st.integers(0, 5),  # keys before them
    st.sampled_from([1, 2, 4, 8]),  # d_head
)


@given(sizes, st.integers(0, 2**31))
def test_both_paths_match_the_loop(size, seed):
    batch, (heads, kv_heads), n_query, n_cached, d_head = size
    torch.manual_seed(seed)
    query, key, value = random_heads(batch, heads, kv_heads, n_query, n_query + n_cached, d_head)
    mask = causal_mask(n_query, n_query + n_cached)
    explicit = explicit_attention(query, key, value, mask).context
    fused = fused_attention(query, key, value)
    for b in range(batch):
        for h in range(heads):
            shared = h * kv_heads // heads
            expected = loop_head(query[b, h], key[b, shared], value[b, shared])
            torch.testing.assert_close(explicit[b, h], expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(fused[b, h], expected, rtol=1e-5, atol=1e-5)


def test_dropout_keeps_the_expectation_and_the_returned_weights():
    torch.manual_seed(0)
    query, key, value = random_heads(1, 2, 2, 4, 4, 8)
    mask = causal_mask(4, 4)
    whole = explicit_attention(query, key, value, mask)
    dropped = explicit_attention(query, key, value, mask, dropout=0.3)
    assert torch.equal(dropped.weights, whole.weights)
    assert not torch.allclose(dropped.context, whole.context)
    assert not torch.allclose(fused_attention(query, key, value, dropout=0.3), whole.context)

    query, key, value = (part.expand(4000, -1, -1, -1) for part in (query, key, value))
    for context in (
        explicit_attention(query, key, value, mask, dropout=0.3).context,
        fused_attention(query, key, value, dropout=0.3),
    ):
        mean, error = context.mean(0), context.std(0) / math.sqrt(4000)
        assert ((mean - whole.context[0]).abs() < 5 * error + 1e-6).all()


def rotate(vector: Tensor, position: int, theta: float) -> Tensor:
    """Rotary positions in complex numbers: a pair (a, b) is a + bi, and rotation is a product."""
    half = len(vector) // 2
    angles = position * theta ** (-torch.arange(half) / half)
    rotated = torch.complex(vector[:half], vector[half:]) * torch.polar(torch.ones(half), angles)
    return torch.cat((rotated.real, rotated.imag))


def loop_module(module, config, x):
    """The module applied to one sequence, one head and one token at a time."""

    def heads_of(linear, norm, n_heads):
        heads = torch.empty(n_heads, len(x), config.d_head)
        for position, token in enumerate(x):
            for head, vector in enumerate(linear(token).chunk(n_heads)):
                if norm is not None and config.qk_norm:
                    vector = vector / (vector.square().mean() + config.norm_eps).sqrt()
                    vector = vector * norm.weight
                if norm is not None and config.position == "rotary":
                    vector = rotate(vector, position, config.rope_theta)
                heads[head, position] = vector
        return heads

    queries = heads_of(module.query, module.query_norm, config.n_heads)
    keys = heads_of(module.key, module.key_norm, config.n_kv_heads)
    values = heads_of(module.value, None, config.n_kv_heads)
    shared_by = config.n_heads // config.n_kv_heads
    contexts = [
        loop_head(queries[h], keys[h // shared_by], values[h // shared_by])
        for h in range(config.n_heads)
    ]
    return module.output(torch.cat(contexts, dim=-1))


@torch.no_grad()
def test_the_module_matches_an_unbatched_loop_over_heads(make_model, family):
    model = make_model(d_head=6, **family)
    module = model.blocks[0].attention
    x = torch.randn(2, 5, 16)
    expected = torch.stack([loop_module(module, model.config, sequence) for sequence in x])
    torch.testing.assert_close(module(x), expected, rtol=1e-4, atol=1e-4)


@every_device
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 0.03)], ids=["fp32", "bf16"]
)
@pytest.mark.parametrize(
    ("n_query", "n_key", "window"),
    [(1, 40, None), (7, 40, None), (40, 40, None), (40, 40, 7), (520, 520, None)],
)
def test_both_paths_have_the_values_and_gradients_of_float64(
    n_query, n_key, window, dtype, tolerance, device
):
    """Whichever kernels `fused_attention` uses: they depend on the length of the context."""
    torch.manual_seed(0)
    parts = [part.to(dtype).double() for part in random_heads(2, 4, 2, n_query, n_key, 16)]
    slope = torch.randn(2, 4, n_query, 16).to(dtype).double()

    def explicit(query, key, value):
        mask = window_mask(n_query, n_key, window or n_key, query.device)
        return explicit_attention(query, key, value, mask).context

    def fused(query, key, value):
        mask = window_mask(n_query, n_key, window, query.device) if window else None
        return fused_attention(query, key, value, mask)

    found = []
    for attend, place, kind in (
        (explicit, "cpu", torch.float64),
        (explicit, device, dtype),
        (fused, device, dtype),
    ):
        own = [part.to(place, kind, copy=True).requires_grad_() for part in parts]
        context = attend(*own)
        gradients = torch.autograd.grad(context, own, slope.to(place, kind))
        assert context.dtype == kind
        found.append([each.detach().double().cpu() for each in (context, *gradients)])
    expected, *others = found
    for other in others:
        for mine, exact in zip(other, expected, strict=True):
            assert (mine - exact).abs().max() <= tolerance * exact.abs().max()


def test_a_query_without_keys_gives_zeros_and_finite_gradients():
    torch.manual_seed(0)
    parts = query, key, value = random_heads(2, 4, 2, 3, 5, 4)
    for each in parts:
        each.requires_grad_()
    mask = causal_mask(3, 5)
    mask[1] = False
    steps = explicit_attention(query, key, value, mask)
    assert (steps.weights[:, :, 1] == 0).all()
    assert (steps.context[:, :, 1] == 0).all()
    fused = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
    torch.testing.assert_close(steps.context, fused)
    steps.context.square().sum().backward()
    assert all(each.grad.isfinite().all() for each in parts)
    assert (query.grad[:, :, 1] == 0).all()
