"""Every subset of the parts of a model, against `ablate`; the axioms of Shapley values; and a model
whose circuit is known."""

from __future__ import annotations

import importlib
import math
from itertools import combinations, permutations
from typing import Any

import pytest
import torch
from torch import nn

from model import GPT, circuit, edit, mean_outputs, patch
from model.circuit import Circuit, parts_of
from model.hooks import Part, ablate, record_attention
from tests.conftest import small_config

V = 9
MODULE = importlib.import_module("model.circuit")  # the package has a function of that name


def gpt(n_layers: int = 2, n_heads: int = 2, **choices: Any) -> Any:
    torch.manual_seed(3)
    model = GPT(small_config(n_layers, n_heads, 8, 16, **choices), V).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


TOKENS = torch.tensor([3, 1, 4, 1, 5, 2, 6, 5])
OTHER = torch.tensor([2, 7, 1, 8, 2, 8, 1, 8])
MEANS = {part: torch.zeros(4 if isinstance(part, tuple) else 8) for part in parts_of(gpt())}


def by_ablation(model: GPT, parts: tuple[Part, ...], by: Any, value: Any) -> list[float]:
    """One pass for every subset."""
    found = []
    for subset in range(2 ** len(parts)):
        off = [part for i, part in enumerate(parts) if not subset >> i & 1]
        heads = [part for part in off if isinstance(part, tuple)]
        mlps = [int(part[4:]) for part in off if isinstance(part, str)]
        with torch.no_grad(), ablate(model, heads, by, mlps):
            found.append(float(value(model(TOKENS[None])[0, -1])))
    return found


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "gpt-2": {
        "norm": "layernorm",
        "position": "learned",
        "mlp": "gelu",
        "bias": True,
        "qk_norm": False,
    },
    "shared keys": {"n_layers": 1, "n_heads": 4, "n_kv_heads": 2},
    "window and cap": {"window": 3, "logit_softcap": 2.0},
    "three layers": {"n_layers": 3, "n_heads": 1},
    "a row at a time": {},
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_subset_is_what_ablation_of_the_others_leaves(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "a row at a time":
        monkeypatch.setattr(MODULE, "MAX_VALUES", 1)
    net = gpt(**ARCHITECTURES[name]).train()
    means = mean_outputs(net, [(OTHER[None, :-1], OTHER[None, 1:])])
    for by in ("zero", means):
        found = circuit(net, TOKENS, by, target=4)
        assert net.training and found.parts == tuple(parts_of(net))
        with torch.no_grad():
            net.eval()
            expected = by_ablation(net, found.parts, by, lambda logits: logits.softmax(-1)[4])
            net.train()
        assert found.values.tolist() == pytest.approx(expected, abs=1e-5)
    layer = net.config.n_layers - 1
    found = circuit(net, TOKENS, means, target=4, versus=2, parts=[f"mlp {layer}", (0, 0)])
    net.eval()
    assert found.names == ["L0H0", f"L{layer} MLP"]
    expected = by_ablation(net, found.parts, means, lambda logits: logits[4] - logits[2])
    assert found.values.tolist() == pytest.approx(expected, abs=1e-5)


def test_logits_of_a_large_vocabulary_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    net, most, value, sizes = GPT(small_config(2, 2, 8, 16), 500), 2**12, MODULE._value, []

    def keep(logits: torch.Tensor, target: int, versus: int | None) -> torch.Tensor:
        sizes.append(logits.numel())
        found: torch.Tensor = value(logits, target, versus)
        return found

    monkeypatch.setattr(MODULE, "MAX_VALUES", most)
    monkeypatch.setattr(MODULE, "_value", keep)
    circuit(net, TOKENS[:1], "zero")
    assert sum(sizes) >= 64 * 500 and max(sizes) <= 2 * most


def test_parts_can_have_the_values_of_another_text() -> None:
    net = gpt()
    found = circuit(net, TOKENS, OTHER)
    assert found.target == int(net(TOKENS[None])[0, -1].argmax())
    with torch.no_grad(), record_attention(net, keep="context") as contexts:
        net(OTHER[None])
    with torch.no_grad(), patch(net, {(0, 1): contexts[0][:, 1], (1, 0): contexts[1][:, 0]}):
        expected = net(TOKENS[None])[0, -1].softmax(-1)[found.target]
    off = sum(1 << i for i, part in enumerate(found.parts) if part in ((0, 1), (1, 0)))
    assert found.values[63 ^ off].item() == pytest.approx(float(expected), abs=1e-5)


def test_edits_that_are_open_are_part_of_the_model() -> None:
    net = gpt()
    with torch.no_grad(), edit(net, {(0, 0): lambda context: 2 * context, "mlp 0": torch.neg}):
        found = circuit(net, TOKENS, "zero", target=4)
        expected = by_ablation(net, found.parts, "zero", lambda logits: logits.softmax(-1)[4])
    assert found.values.tolist() == pytest.approx(expected, abs=1e-5)
    with record_attention(net, keep="context") as contexts:
        net(OTHER[None])
    streams = {"stream 1": torch.tanh, "stream 2": lambda x: 1.02 * x + 0.02}
    first = {"mlp 1": lambda x: torch.cat([0 * x[:, :7], x[:, 7:]], 1), "mlp 0": torch.neg}
    for opened in (edit(net, first), edit(net, streams), patch(net, {(1, 1): contexts[1][:, 1]})):
        with torch.no_grad(), opened:
            found = circuit(net, TOKENS, "zero", target=4)
            expected = by_ablation(net, found.parts, "zero", lambda logits: logits.softmax(-1)[4])
        assert found.values.tolist() == pytest.approx(expected, abs=1e-5)
    hook = net.blocks[1].register_forward_hook(lambda _block, _inputs, x: -x)
    with pytest.raises(ValueError, match="a hook changes what is no head and no MLP"):
        circuit(net, TOKENS, "zero")
    hook.remove()


def made_of(value: Any, n: int) -> Circuit:
    parts = tuple((0, i) for i in range(n))
    sets = [{i for i in range(n) if subset >> i & 1} for subset in range(2**n)]
    return Circuit(parts, torch.tensor([float(value(each)) for each in sets]), 0)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_shapley_values_are_means_over_all_orders(n: int) -> None:
    torch.manual_seed(n)
    found = made_of(lambda _: torch.rand(()) - 1, n)  # below 0, as differences of logits can be
    expected = torch.zeros(n).double()
    for order in permutations(range(n)):
        subset = 0
        for part in order:
            expected[part] += found.values[subset | 1 << part] - found.values[subset]
            subset |= 1 << part
    shapley = found.shapley()
    torch.testing.assert_close(shapley, expected / math.factorial(n), atol=1e-6, rtol=0)
    assert shapley.sum() == pytest.approx(float(found.values[-1] - found.values[0]), abs=1e-6)
    sizes = {
        size: [sum(1 << i for i in on) for on in combinations(range(n), size)]
        for size in range(n + 1)
    }
    for size, (on, value) in enumerate(found.best()):
        assert len(on) == size and value == found.values[sizes[size]].max()
        assert value == found.values[sum(1 << int(part[1]) for part in on)]


def test_interactions_are_the_published_sum_over_subsets() -> None:
    """Grabisch and Roubens 1999, equation of the index of a pair: the weight of a subset T of the
    other n - 2 parts is (n - t - 2)! t! / (n - 1)!."""
    n = 4
    torch.manual_seed(1)
    found = made_of(lambda _: torch.rand(()), n)
    v, pairs = found.values.double(), found.interactions()
    for i, j in combinations(range(n), 2):
        expected = 0.0
        for subset in range(2**n):
            if not subset & (1 << i | 1 << j):
                t = subset.bit_count()
                weight = math.factorial(n - t - 2) * math.factorial(t) / math.factorial(n - 1)
                both = v[subset | 1 << i | 1 << j] + v[subset]
                expected += weight * float(both - v[subset | 1 << i] - v[subset | 1 << j])
        assert float(pairs[i, j]) == float(pairs[j, i]) == pytest.approx(expected, abs=1e-12)
    assert pairs.diagonal().tolist() == [0.0] * n


def test_parts_that_need_each_other_and_parts_that_stand_in() -> None:
    """0 and 1 together give 1, 2 or 3 gives another 1, and 4 gives nothing."""
    found = made_of(lambda on: (on >= {0, 1}) + bool(on & {2, 3}), 5)
    assert found.shapley().tolist() == pytest.approx([0.5, 0.5, 0.5, 0.5, 0])
    assert found.alone().tolist() == pytest.approx([1, 1, 0, 0, 0])
    pairs = found.interactions()
    assert pairs[0, 1] == pytest.approx(1) and pairs[2, 3] == pytest.approx(-1)
    assert pairs[0, 2] == pytest.approx(0) and pairs[4].tolist() == pytest.approx([0] * 5)


def induction_model() -> Any:
    """Heads written by hand: L0H0 notes the token before each token, and L1H0 and L1H1, which are
    alike, look for the place whose noted token is the one that is there, and predict what stands
    there. L0H1 and the MLPs write nothing. The stream has a place for each token, each position,
    each noted token and each prediction."""
    width, length, sharp = 3 * V + 12, 12, 60.0
    choices: dict[str, Any] = {"position": "learned", "qk_norm": False, "tied_embeddings": False}
    config = small_config(2, 2, width, length, d_head=V + length, **choices)
    net: Any = GPT(config, V).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_() if parameter.ndim > 1 else parameter.fill_(1)
        token, position = slice(0, V), slice(V, V + length)
        noted, said = slice(V + length, 2 * V + length), slice(2 * V + length, None)
        net.token_embedding.weight[:, token] = torch.eye(V)
        net.position.weight[:, position] = torch.eye(length)
        first, second = (block.attention for block in net.blocks)
        # Position i asks for position i - 1.
        first.query.weight[:length, position] = sharp * torch.eye(length).roll(-1, 0)
        first.key.weight[:length, position] = torch.eye(length)
        first.value.weight[:V, token] = torch.eye(V)
        first.output.weight[noted, :V] = torch.eye(V)
        for at in (0, V + length):  # of either head
            second.query.weight[at : at + V, token] = sharp * torch.eye(V)
            second.key.weight[at : at + V, noted] = torch.eye(V)
            second.value.weight[at : at + V, token] = torch.eye(V)
            second.output.weight[said, at : at + V] = torch.eye(V)
        net.unembedding.weight[:, said] = sharp * torch.eye(V)
    return net


def test_the_circuit_of_an_induction_head_is_found() -> None:
    net = induction_model()
    tokens = torch.tensor([4, 7, 1, 3, 6, 2, 7])  # 1 came after 7
    found = circuit(net, tokens, "zero")
    assert found.target == 1
    best = found.best()
    assert best[1][1] < 0.5 < 0.99 < best[2][1] and best[6][1] > 0.99
    assert (0, 0) in best[2][0] and best[2][0][1] in ((1, 0), (1, 1))
    values = dict(zip(found.names, found.shapley().tolist(), strict=True))
    alone = dict(zip(found.names, found.alone().tolist(), strict=True))
    assert values["L0H1"] == values["L0 MLP"] == values["L1 MLP"] == pytest.approx(0, abs=1e-6)
    assert values["L1H0"] == pytest.approx(values["L1H1"], abs=1e-6) and values["L1H0"] > 0.1
    assert alone["L0H0"] > 0.5 and abs(alone["L1H0"]) < 0.01
    pairs = found.interactions()
    where = {name: place for place, name in enumerate(found.names)}
    assert pairs[where["L1H0"], where["L1H1"]] < -0.1 < 0.1 < pairs[where["L0H0"], where["L1H0"]]


def test_of_many_parts_those_are_taken_that_matter_most_alone() -> None:
    net = gpt(n_layers=4, n_heads=4)
    with pytest.raises(ValueError, match=r"20 heads and MLPs have 2\^20 subsets.*parts=16"):
        circuit(net, TOKENS, "zero")
    found = circuit(net, TOKENS, "zero", parts=3)
    whole = circuit(net, TOKENS, "zero", parts=16, target=found.target)
    falls = []
    for part in parts_of(net):
        falls.append(
            abs(float(circuit(net, TOKENS, "zero", found.target, parts=[part]).alone()[0]))
        )
    ranked = sorted(parts_of(net), key=lambda part: -falls[parts_of(net).index(part)])
    assert {*found.parts} == {*ranked[:3]} and {*whole.parts} == {*ranked[:16]}
    assert [*found.parts] == [part for part in parts_of(net) if part in found.parts]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": V}, "target: 9"),
        ({"versus": -1}, "versus: -1"),
        ({"by": "mean"}, "by: 'mean'"),
        ({"by": {(0, 0): torch.zeros(4)}}, r"by: has no constant of \(0, 1\)"),
        ({"by": {**MEANS, (0, 1): torch.zeros(3)}}, r"\(0, 1\): has the shape \[3\]"),
        ({"by": {**MEANS, (0, 0): torch.full((4,), math.nan)}}, "by: .* not finite"),
        ({"by": OTHER[:3]}, "by: has 3 tokens; give a text of 8"),
        ({"parts": [(2, 0)]}, r"parts: the model has no \(2, 0\)"),
        ({"parts": []}, "parts: 0 heads"),
        ({"parts": 17}, "parts: 17"),
        ({"tokens": TOKENS.repeat(3)}, "tokens: 24 tokens exceed"),
        ({"tokens": TOKENS[:0]}, r"tokens: have the shape \[0\]"),
        ({"tokens": TOKENS[None]}, r"tokens: have the shape \[1, 8\]"),
        ({"by": {**MEANS, "mlp 1": torch.zeros(8, 8)}}, r"mlp 1: has the shape \[8, 8\]"),
    ],
)
def test_what_cannot_be_computed_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        circuit(gpt(), **{"tokens": TOKENS, "by": "zero", **given})


def test_weights_that_are_not_finite_are_refused() -> None:
    net = gpt()
    with torch.no_grad():
        net.token_embedding.weight[:] = math.nan
    with pytest.raises(ValueError, match="not finite"):
        circuit(net, TOKENS, "zero")
