"""The terms of a score sum to what the model computes, and a part that writes nothing has none;
what heads read of earlier heads, against loops over the cells of their maps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from model import (
    GPT,
    ablate,
    edit,
    explain_score,
    patch,
    record_attention,
    wiring,
    wiring_matrices,
)
from model.explain import stream_parts

N_TOKENS = 6


@torch.no_grad()
def test_terms_sum_to_the_scaled_score(make_model, family):
    model, tokens = make_model(**family), torch.randint(13, (7,))
    with record_attention(model, keep="scaled") as scaled:
        model(tokens[None])
    n_parts = 6 if family["position"] == "rotary" else 7  # 4 heads, MLP, embedding; biases
    for layer in range(2):
        for head in range(4):
            for query, key in ((0, 0), (3, 1), (6, 6), (6, 2)):
                terms = explain_score(model, tokens, (layer, head), query, key)
                expected = float(scaled[layer][0, head, query, key])
                assert sum(terms.values()) == pytest.approx(expected, abs=1e-4, rel=1e-5)
                assert len(terms) == (n_parts + 1 if layer else n_parts - 4) ** 2


@torch.no_grad()
def test_a_part_that_writes_nothing_has_no_terms(make_model):
    model, tokens = make_model(bias=False), torch.randint(13, (7,))
    with ablate(model, [(0, 1)], "zero", mlps=[0]):
        ablated = explain_score(model, tokens, (1, 3), 5, 2)
    model.blocks[0].attention.output.weight[:, 4:8] = 0
    for parameter in model.blocks[0].mlp.parameters():
        parameter.zero_()
    terms = explain_score(model, tokens, (1, 3), 5, 2)
    silent = [value for names, value in terms.items() if {"L0H1", "L0 MLP"} & {*names}]
    assert len(silent) == 24 and not any(silent)
    assert terms[("L0H0", "embedding")] != 0
    assert ablated == pytest.approx(terms, abs=1e-9)


@torch.no_grad()
def test_an_edit_of_the_stream_is_a_part(make_model, family):
    """Layers before it do not have it, and what it has written is the difference that it makes."""
    model, tokens = make_model(n_layers=3, **family), torch.randint(13, (7,))
    streams = {}

    def steered(x):
        streams["before"], streams["after"] = x, 1.5 * x + 1
        return streams["after"]

    other = torch.randn(1, 7, 16)
    with (
        edit(model, {"stream 1": steered, "mlp 0": lambda x: 2 * x, (0, 1): torch.sin}),
        patch(model, {"stream 2": other}),
        ablate(model, [(1, 0)], {(1, 0): torch.randn(4)}),
    ):
        with record_attention(model, keep="scaled") as scaled:
            model(tokens[None])
        terms = [explain_score(model, tokens, (layer, 2), 5, 2) for layer in range(3)]
        shares = wiring(model, tokens)
        parts = stream_parts(model, tokens)
    for layer in range(3):
        expected = float(scaled[layer][0, 2, 5, 2])
        assert sum(terms[layer].values()) == pytest.approx(expected, abs=1e-4, rel=1e-5)
        assert (("edit", "edit") in terms[layer]) == ("edit" in shares[layer]) == (layer > 0)
        total = torch.stack([*shares[layer].values()]).sum(0)
        torch.testing.assert_close(total, torch.ones(3, 4), rtol=0, atol=1e-4)
    made = (streams["after"] - streams["before"])[0].double()
    torch.testing.assert_close(parts[1]["edit"], made, rtol=0, atol=1e-6)
    whole = torch.stack([*parts[2].values()]).sum(0)
    torch.testing.assert_close(whole, other[0].double(), rtol=0, atol=1e-4)
    assert "edit" not in stream_parts(model, tokens)[2]


@torch.no_grad()
@pytest.mark.parametrize("part", ["attention.query", "attention_norm"])
def test_what_a_hook_changes_is_no_sum_of_parts(make_model, part):
    model, tokens = make_model(), torch.randint(13, (7,))
    hook = model.blocks[1].get_submodule(part).register_forward_hook(lambda *given: given[2] + 0.1)
    for explain in (
        lambda: explain_score(model, tokens, (1, 0), 3, 1),
        lambda: wiring(model, tokens),
    ):
        with pytest.raises(ValueError, match=r"^model: a hook changes "):
            explain()
    hook.remove()
    assert wiring(model, tokens)


@torch.no_grad()
def test_a_term_is_the_product_of_two_parts(make_model):
    """In the first layer of a model without norms on queries: the explicit product."""
    family = {"norm": "rmsnorm", "position": "learned", "qk_norm": False, "bias": False}
    model, tokens = make_model(**family), torch.tensor([3, 8])
    block = model.blocks[0]
    stream = model.token_embedding(tokens) + model.position.weight[:2]
    scale = (stream.square().mean(-1) + block.attention_norm.eps).rsqrt()
    gain = block.attention_norm.weight
    query = block.attention.query.weight[8:12] @ (model.token_embedding.weight[8] * gain * scale[1])
    key = block.attention.key.weight[8:12] @ (model.position.weight[0] * gain * scale[0])
    terms = explain_score(model, tokens, (0, 2), 1, 0)
    assert terms["embedding", "position"] == pytest.approx(float(query @ key) / 2, rel=1e-4)


@pytest.mark.parametrize(
    ("explain", "reason"),
    [
        (lambda model, tokens: explain_score(model, tokens, (2, 0), 3, 1), "layer: "),
        (lambda model, tokens: explain_score(model, tokens, (1, 0), 7, 1), "query: "),
        (lambda model, tokens: explain_score(model, tokens, (1, 0), 3, 4), "key: "),
        (lambda model, tokens: wiring(model, tokens, torch.tensor([3])), "queries: "),
        (lambda model, tokens: wiring(model, tokens, torch.ones(5, dtype=torch.bool)), "queries: "),
    ],
)
def test_what_there_is_not_is_refused(make_model, explain, reason, no_shape_checks):
    with pytest.raises(ValueError, match=f"^{reason}"):
        explain(make_model(), torch.randint(13, (7,)))


def values_of(model: Any, tokens: Tensor, layer: int, kv_head: int) -> dict[str, Tensor]:
    """What each part writes into the values, (token, d_head), with the scale of the norm frozen."""
    block, parts = model.blocks[layer], stream_parts(model, tokens)[layer]
    norm, value = block.attention_norm, block.attention.value
    rows = slice(4 * kv_head, 4 * kv_head + 4)

    def centred(x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True) if isinstance(norm, torch.nn.LayerNorm) else x

    whole = centred(torch.stack([*parts.values()]).sum(0))
    gain = norm.weight / (whole.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    normed = {name: centred(part) * gain for name, part in parts.items()}
    if getattr(norm, "bias", None) is not None:
        normed["biases"] += norm.bias
    found = {name: part @ value.weight[rows].double().T for name, part in normed.items()}
    if value.bias is not None:
        found["biases"] += value.bias[rows]
    return found


def looped(
    model: GPT, tokens: Tensor, layer: int, head: int, queries: list[int]
) -> dict[str, list[float]]:
    """The shares of every part in the queries, keys and values of a head, cell by cell."""
    with record_attention(model, keep="steps") as steps:
        model(tokens[None])
    weights, masked = steps[layer].weights[0, head].double(), steps[layer].masked[0, head]
    values = values_of(model, tokens, layer, head * steps[layer].key.shape[1] // 4)
    sums = {name: torch.zeros(3).double() for name in values}
    for query in queries:
        keys = [key for key in range(query + 1) if masked[query, key] > -torch.inf]
        for key in keys:
            preference = float(weights[query, key]) - 1 / len(keys)
            terms = explain_score(model, tokens, (layer, head), query, key)
            for (in_query, in_key), term in terms.items():
                sums[in_query][0] += preference * term
                sums[in_key][1] += preference * term
        gathered = {name: weights[query, keys] @ value[keys] for name, value in values.items()}
        output = torch.stack([*gathered.values()]).sum(0)
        for name, part in gathered.items():
            sums[name][2] += part @ output
    total = torch.stack([*sums.values()]).sum(0)
    return {name: (part / total).tolist() for name, part in sums.items()}


def check(model: GPT, queries: Tensor | None = None) -> None:
    tokens = torch.randint(13, (N_TOKENS,))
    found = wiring(model, tokens, queries)
    places = [*range(N_TOKENS)] if queries is None else queries.nonzero()[:, 0].tolist()
    for layer, head in ((0, 2), (1, 0), (1, 3)):
        expected = looped(model, tokens, layer, head, places)
        assert [*found[layer]] == [*expected]
        for name, shares in expected.items():
            assert found[layer][name][:, head].tolist() == pytest.approx(shares, abs=1e-4), name


@torch.no_grad()
def test_shares_are_those_of_all_cells(make_model, family):
    check(make_model(**family))


@torch.no_grad()
def test_queries_can_be_chosen(make_model):
    check(make_model(), torch.tensor([False, False, True, False, True, True]))


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
