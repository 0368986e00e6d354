"""The terms of a score sum to what the model computes, and a part that writes nothing has none."""

from __future__ import annotations

import pytest
import torch

from model import ablate, edit, explain_score, patch, record_attention, wiring
from model.explain import stream_parts


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
    ("head", "query", "key", "reason"),
    [
        ((2, 0), 3, 1, "layer"),
        ((1, 0), 7, 1, "query"),
        ((1, 0), 3, 4, "key"),
    ],
)
def test_what_there_is_not_is_refused(make_model, head, query, key, reason):
    with pytest.raises(ValueError, match=f"^{reason}: "):
        explain_score(make_model(), torch.randint(13, (7,)), head, query, key)
