"""Every subset of the parts of a model, against `ablate`; Shapley values and interactions, against
sums over orders and subsets."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any

import pytest
import torch
from torch import nn

from model import GPT, circuit, edit, mean_outputs, patch
from model.circuit import Circuit, parts_of
from model.hooks import Part, ablate, record_attention
from tests.conftest import small_config
from tests.model.conftest import FAMILIES

V = 9
MODULE = importlib.import_module("model.circuit")  # the package has a function of that name


def gpt(n_layers: int = 2, n_heads: int = 2, **choices: Any) -> Any:
    torch.manual_seed(3)
    model = GPT(small_config(n_layers, n_heads, 8, 16, dropout=0.5, **choices), V).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


TOKENS = torch.tensor([3, 1, 4, 1, 5, 2, 6, 5])
OTHER = torch.tensor([2, 7, 1, 8, 2, 8, 1, 8])
MEANS = {part: torch.zeros(4 if isinstance(part, tuple) else 8) for part in parts_of(gpt())}


def probability(logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(-1)[4]


@torch.no_grad()
def by_ablation(
    model: GPT, parts: tuple[Part, ...], by: Any, value: Callable[..., Any] = probability
) -> Any:
    """One pass for every subset."""
    found = []
    for subset in range(2 ** len(parts)):
        off = [part for i, part in enumerate(parts) if not subset >> i & 1]
        heads = [part for part in off if isinstance(part, tuple)]
        mlps = [int(part[4:]) for part in off if isinstance(part, str)]
        with ablate(model, heads, by, mlps):
            found.append(float(value(model(TOKENS[None])[0, -1])))
    return pytest.approx(found, abs=1e-5)


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "gpt-2": FAMILIES[0],
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
        net.eval()
        assert found.values.tolist() == by_ablation(net, found.parts, by)
        net.train()
    layer = net.config.n_layers - 1
    found = circuit(net, TOKENS, means, target=4, versus=2, parts=[f"mlp {layer}", (0, 0)])
    net.eval()
    assert found.names == ["L0H0", f"L{layer} MLP"]
    expected = by_ablation(net, found.parts, means, lambda logits: logits[4] - logits[2])
    assert found.values.tolist() == expected


def test_logits_of_a_large_vocabulary_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    net, most, value, sizes = GPT(small_config(2, 2, 8, 16), 500), 2**11, MODULE._value, []

    def keep(logits: torch.Tensor, target: int, versus: int | None) -> torch.Tensor:
        sizes.append(logits.numel())
        found: torch.Tensor = value(logits, target, versus)
        return found

    monkeypatch.setattr(MODULE, "MAX_VALUES", most)
    monkeypatch.setattr(MODULE, "_value", keep)
    circuit(net, TOKENS[:1], "zero")
    assert sum(sizes) >= 64 * 500 and max(sizes) <= most


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
    with record_attention(net, keep="context") as contexts:
        net(OTHER[None])
    last = {"mlp 1": lambda x: torch.cat([0 * x[:, :7], x[:, 7:]], 1), "mlp 0": torch.neg}
    streams = {"stream 1": torch.tanh, "stream 2": lambda x: 1.02 * x + 0.02}
    for opened in (
        edit(net, {(0, 0): lambda context: 2 * context, "mlp 0": torch.neg}),
        edit(net, last),
        edit(net, streams),
        patch(net, {(1, 1): contexts[1][:, 1]}),
    ):
        with opened:
            found = circuit(net, TOKENS, "zero", target=4)
            assert found.values.tolist() == by_ablation(net, found.parts, "zero")
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
    shapley, alone = found.shapley(), found.alone()
    torch.testing.assert_close(shapley, expected / math.factorial(n), atol=1e-6, rtol=0)
    assert shapley.sum() == pytest.approx(float(found.values[-1] - found.values[0]), abs=1e-6)
    falls = [found.values[-1] - found.values[-1 - (1 << part)] for part in range(n)]
    torch.testing.assert_close(alone, torch.stack(falls).double(), atol=1e-6, rtol=0)
    for size, (on, value) in enumerate(found.best()):
        equal = [subset for subset in range(2**n) if subset.bit_count() == size]
        assert len(on) == size and value == found.values[equal].max()
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


def test_of_many_parts_those_are_taken_that_matter_most_alone() -> None:
    net = gpt(n_layers=4, n_heads=4)
    with pytest.raises(ValueError, match=r"20 heads and MLPs have 2\^20 subsets.*parts=16"):
        circuit(net, TOKENS, "zero")
    found = circuit(net, TOKENS, "zero", parts=3)
    falls = {
        part: abs(float(circuit(net, TOKENS, "zero", found.target, parts=[part]).alone()))
        for part in parts_of(net)
    }
    most = sorted(falls, key=lambda part: -falls[part])[:3]
    assert [*found.parts] == [part for part in parts_of(net) if part in most]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": V}, "target: 9"),
        ({"versus": -1}, "versus: -1"),
        ({"by": {(0, 0): torch.zeros(4)}}, r"by: has no constant of \(0, 1\)"),
        ({"by": {**MEANS, (0, 0): torch.full((4,), math.nan)}}, "by: .* not finite"),
        ({"by": OTHER[:3]}, "by: has 3 tokens; give a text of 8"),
        ({"parts": [(2, 0)]}, r"parts: the model has no \(2, 0\)"),
        ({"parts": []}, "parts: 0 heads"),
        ({"parts": 17}, "parts: 17"),
        ({"tokens": TOKENS[:0]}, r"tokens: have the shape \[0\]"),
        ({"by": {**MEANS, "mlp 1": torch.zeros(8, 8)}}, r"mlp 1: has the shape \[8, 8\]"),
    ],
)
def test_what_cannot_be_computed_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        circuit(gpt(), **{"tokens": TOKENS, "by": "zero", **given})
