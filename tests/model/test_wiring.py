"""What heads read of earlier heads, against loops over the cells of their maps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT, explain_score, record_attention, wiring, wiring_matrices
from model.explain import stream_parts

N_TOKENS = 6


def values_of(model: Any, tokens: Tensor, layer: int, kv_head: int) -> dict[str, Tensor]:
    """What each part writes into the values, (token, d_head), with the scale of the norm frozen."""
    block, parts = model.blocks[layer], stream_parts(model, tokens)[layer]
    norm, rows = block.attention_norm, slice(4 * kv_head, 4 * kv_head + 4)
    stream = torch.stack([*parts.values()]).sum(0)
    found = {}
    for name, part in parts.items():
        if isinstance(norm, torch.nn.LayerNorm):
            scale = (stream.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
            normed = (part - part.mean(-1, keepdim=True)) / scale * norm.weight
            if name == "biases" and norm.bias is not None:
                normed = normed + norm.bias
        else:
            scale = (stream.square().mean(-1, keepdim=True) + norm.eps).sqrt()
            normed = part / scale * norm.weight
        found[name] = normed @ block.attention.value.weight[rows].double().T
        if name == "biases" and block.attention.value.bias is not None:
            found[name] = found[name] + block.attention.value.bias[rows]
    return found


def looped(
    model: GPT, tokens: Tensor, layer: int, head: int, queries: list[int]
) -> dict[str, list[float]]:
    """The shares of every part in the queries, keys and values of a head, cell by cell."""
    with record_attention(model, keep="steps") as steps:
        model(tokens[None])
    weights, masked = steps[layer].weights[0, head].double(), steps[layer].masked[0, head].double()
    values = values_of(model, tokens, layer, head * steps[layer].key.shape[1] // 4)
    names = [*values]
    sums = {name: [0.0, 0.0, 0.0] for name in names}
    whole = [0.0, 0.0, 0.0]
    for query in queries:
        keys = [key for key in range(query + 1) if masked[query, key] > -torch.inf]
        for key in keys:
            preference = float(weights[query, key]) - 1 / len(keys)
            for way in (0, 1):
                whole[way] += preference * float(masked[query, key])
            terms = explain_score(model, tokens, (layer, head), query, key)
            for (in_query, in_key), term in terms.items():
                sums[in_query][0] += preference * term
                sums[in_key][1] += preference * term
        gathered = {
            name: torch.stack([weights[query, key] * values[name][key] for key in keys]).sum(0)
            for name in names
        }
        output = torch.stack([*gathered.values()]).sum(0)
        whole[2] += float(output @ output)
        for name in names:
            sums[name][2] += float(gathered[name] @ output)
    return {
        name: [part / total for part, total in zip(sums[name], whole, strict=True)]
        for name in names
    }


def check(model: GPT, queries: Tensor | None = None) -> None:
    tokens = torch.randint(13, (N_TOKENS,))
    found = wiring(model, tokens, queries)
    places = [*range(N_TOKENS)] if queries is None else queries.nonzero()[:, 0].tolist()
    for layer, head in ((0, 2), (1, 0), (1, 3)):
        expected = looped(model, tokens, layer, head, places)
        assert [*found[layer]] == [*expected]
        for name, shares in expected.items():
            assert found[layer][name][:, head].tolist() == pytest.approx(shares, abs=1e-4), name
    for parts in found:
        total = torch.stack([*parts.values()]).sum(0)
        assert total.tolist() == [pytest.approx([1.0] * 4, abs=1e-4)] * 3


@torch.no_grad()
def test_shares_are_those_of_all_cells(make_model, family):
    check(make_model(**family))


@torch.no_grad()
def test_queries_can_be_chosen(make_model):
    check(make_model(), torch.tensor([False, False, True, False, True, True]))


@pytest.mark.parametrize("queries", [torch.tensor([3]), torch.ones(5, dtype=torch.bool)])
def test_queries_that_are_no_boolean_for_each_token_are_refused(
    make_model, queries, no_shape_checks
):
    with pytest.raises(ValueError, match="give 6 booleans, one for each token"):
        wiring(make_model(), torch.arange(6), queries)


def test_wiring_of_a_model_in_float64(make_model):
    tokens, model = torch.randint(13, (6,)), make_model()
    expected = wiring(model, tokens)
    for shares, given in zip(wiring(model.double(), tokens), expected, strict=True):
        for name, share in shares.items():
            torch.testing.assert_close(share, given[name], rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_even_attention_is_that_to_all_keys_that_a_query_may_attend_to(make_model):
    check(make_model(window=3))


@torch.no_grad()
def test_edges_between_more_than_two_layers(make_model):
    model = make_model(n_layers=3)
    tokens = torch.randint(13, (N_TOKENS,))
    queries = torch.tensor([False, False, True, True, True, False])
    found = wiring(model, tokens[:5], queries[:5])
    edges = wiring_matrices(model, tokens, queries, longest=5)
    assert edges is not None
    for layer, earlier in ((1, 0), (2, 0), (2, 1)):
        for head in range(4):
            assert torch.equal(
                edges[:, layer, :, earlier, head], found[layer][f"L{earlier}H{head}"]
            )
    assert not edges[:, 1, :, 1:].any() and not edges[:, 2, :, 2].any()
    late = torch.arange(N_TOKENS) == N_TOKENS - 1  # queries are read wherever they are
    edges = wiring_matrices(model, tokens, late, longest=2)
    assert edges is not None
    assert torch.equal(edges[:, 2, :, 0, 1], wiring(model, tokens, late)[2]["L0H1"])


def test_norms_whose_scale_is_not_known_have_no_wiring(make_model):
    model = make_model(n_layers=2)
    model.blocks[0].attention_norm = torch.nn.Identity()
    assert wiring_matrices(model, torch.randint(13, (N_TOKENS,))) is None
