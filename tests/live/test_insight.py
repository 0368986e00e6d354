"""What the page shows of a model's inside, against the same computed from PyTorch's tensors."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model import GPT, edit, explain_score, record_attention
from observe.evidence import record_neurons
from tests.live.conftest import DRAWN, Call
from tests.live.drawn import Case, blocks, cases, packed, switched_off, switches

READING = """async ({ packed, ids, off }) => {
    const intact = new Reading(await load(packed));
    finished(intact.read(ids));
    if (!off) return intact;
    return finished(intact.switched(off, Math.min(...changed(off))));
}"""


class Inside:
    """Every part of the stream at each token, in double precision."""

    def __init__(self, model: GPT, ids: list[int], off: dict[str, Any]):
        tokens = torch.tensor([ids])
        written: list[Tensor] = []
        joined: list[Tensor] = []
        hooks = []

        def keep(value: Tensor) -> Tensor:
            written.append(value[0])
            return value

        with (
            switched_off(model, ids, off),
            record_attention(model, keep="value") as values,
            record_neurons(model) as (neurons, _),
        ):
            for block in blocks(model):  # after those of the ablation
                output = block.attention.output
                hooks.append(output.register_forward_pre_hook(lambda _, x: joined.append(x[0][0])))
            mlps = {f"mlp {layer}": keep for layer in range(len(model.blocks))}
            with edit(model, mlps):
                self.logits = model(tokens)[0].double()
        for hook in hooks:
            hook.remove()
        self.model = model
        self.embedding = model.token_embedding.weight[tokens[0]].double()
        self.start = model.embed(tokens)[0].double()
        self.mlps = [each.double() for each in written]
        self.contexts = [each.double() for each in joined]
        self.values = [each[0].double() for each in values]
        self.neurons = [each[0].double() for each in neurons]
        self.streams = [self.start]
        for layer, block in enumerate(blocks(model)):
            output = block.attention.output
            bias = 0 if output.bias is None else output.bias.double()
            attended = self.contexts[layer] @ output.weight.double().T + bias
            self.streams.append(self.streams[-1] + attended + self.mlps[layer])

    def columns(self, layer: int, head: int) -> Tensor:
        """The part of the output matrix that belongs to a head."""
        d_head = self.model.config.d_head
        weight = blocks(self.model)[layer].attention.output.weight.double()
        return weight[:, head * d_head : (head + 1) * d_head]

    def head(self, layer: int, head: int) -> Tensor:
        d_head = self.model.config.d_head
        context = self.contexts[layer][:, head * d_head : (head + 1) * d_head]
        return context @ self.columns(layer, head).T

    def normed(self, part: Tensor, i: int) -> Tensor:
        """What the final norm makes of a part of the stream at token i, without its bias."""
        norm, x = self.model.final_norm, self.streams[-1][i]
        gain = norm.get_parameter("weight")
        if isinstance(norm, torch.nn.LayerNorm):
            part, x = part - part.mean(), x - x.mean()
        return part / (x.square().mean() + self.model.config.norm_eps).sqrt() * gain.double()

    def effect(self, part: Tensor, i: int) -> Tensor:
        """On the logits after token i."""
        return self.model.unembedding.weight.double() @ self.normed(part, i)


def either(config: Any) -> st.SearchStrategy[dict[str, Any] | None]:
    return st.none() | switches(config)


NOTHING: dict[str, Any] = {"by": "zero", "heads": [], "mlps": []}


@DRAWN
@given(case=cases(), data=st.data())
def test_terms_of_a_score(engine: Call, case: Case, data: st.DataObject) -> None:
    """They are those of `explain_score`; also with parts switched off."""
    model, ids = case
    config, off = model.config, data.draw(either(model.config))
    layer = data.draw(st.integers(0, config.n_layers - 1))
    head = data.draw(st.integers(0, config.n_heads - 1))
    i = data.draw(st.integers(0, len(ids) - 1))
    j = data.draw(st.integers(0, i))
    place = {"layer": layer, "head": head, "i": i, "j": j}
    code = f"async (x) => scoreTerms(await ({READING})(x), x.layer, x.head, x.i, x.j)"
    found = engine(code, {"packed": packed(model, ids), "ids": ids, "off": off, **place})
    with ExitStack() as stack:
        if off:
            stack.enter_context(switched_off(model, ids, off))
        expected = explain_score(model, torch.tensor(ids), (layer, head), i, j)
    terms = {(term["query"], term["key"]): term["value"] for term in found}
    if not config.bias:
        expected = {names: term for names, term in expected.items() if "biases" not in names}
    assert terms.keys() == expected.keys()
    for names, term in terms.items():
        assert term == pytest.approx(expected[names], abs=1e-4, rel=1e-4)


@DRAWN
@given(case=cases(), data=st.data())
def test_parts_sum_to_the_logit(engine: Call, case: Case, data: st.DataObject) -> None:
    """And each of them is what it adds; also with parts switched off."""
    model, ids = case
    off = data.draw(either(model.config))
    i = data.draw(st.integers(0, len(ids) - 1))
    token = data.draw(st.integers(0, model.vocab_size - 1))
    argument = {"packed": packed(model, ids), "ids": ids, "off": off, "i": i, "token": token}
    code = f"async (x) => attribution(await ({READING})(x), x.i, x.token)"
    found = engine(code, argument)
    inside = Inside(model, ids, off or NOTHING)
    config = model.config

    def effect(part: Tensor) -> float:
        return inside.effect(part, i)[token].item()

    expected = {"embedding": effect(inside.embedding[i])}
    if config.position == "learned":
        expected["position"] = effect(inside.start[i] - inside.embedding[i])
    for layer in range(config.n_layers):
        for head in range(config.n_heads):
            expected[f"L{layer}H{head}"] = effect(inside.head(layer, head)[i])
        expected[f"L{layer} MLP"] = effect(inside.mlps[layer][i])
    logit = inside.logits[i, token].item()
    if config.bias:
        expected["biases"] = logit - sum(expected.values())
    assert dict(found["parts"]) == pytest.approx(expected, abs=1e-4)
    assert abs(found["logit"] - logit) < 1e-3


@DRAWN
@given(case=cases(), data=st.data())
def test_lens(engine: Call, case: Case, data: st.DataObject) -> None:
    model, ids = case
    off = data.draw(either(model.config))
    i = data.draw(st.integers(0, len(ids) - 1))
    code = f"async (x) => lens(await ({READING})(x), x.i, 5)"
    found = engine(code, {"packed": packed(model, ids), "ids": ids, "off": off, "i": i})
    streams = Inside(model, ids, off or NOTHING).streams
    assert len(found) == model.config.n_layers
    for layer, row in enumerate(found, 1):
        logits = model.unembedding(model.final_norm(streams[layer][i].float()))
        check_largest(row, logits.softmax(-1), 1e-4)


def check_largest(found: list[list[float]], values: Tensor, most: float) -> None:
    """These are the five largest of the values, with their index, up to rounding."""
    assert len(found) == min(5, len(values)) == len({index for index, _ in found})
    largest = values.sort(descending=True).values[:5]
    np.testing.assert_allclose([value for _, value in found], largest, atol=most)
    np.testing.assert_allclose([values[int(index)] for index, _ in found], largest, atol=most)


@DRAWN
@given(case=cases(), data=st.data())
def test_circuit_and_what_is_moved(engine: Call, case: Case, data: st.DataObject) -> None:
    model, ids = case
    config = model.config
    i = data.draw(st.integers(0, len(ids) - 1))
    layer = data.draw(st.integers(0, config.n_layers - 1))
    head = data.draw(st.integers(0, config.n_heads - 1))
    code = f"""async (x) => {{
        const reading = await ({READING})(x);
        return {{
            ...circuit(reading, x.layer, x.head, x.i, 5),
            norms: [...reading.valueNorms(x.layer, x.head)],
        }};
    }}"""
    place = {"layer": layer, "head": head, "i": i}
    found = engine(code, {"packed": packed(model), "ids": ids, **place})
    inside = Inside(model, ids, NOTHING)
    value = inside.values[layer][head * config.n_kv_heads // config.n_heads]
    moved = value @ inside.columns(layer, head).T
    np.testing.assert_allclose(found["norms"], moved.norm(dim=-1), atol=1e-4)
    effect = inside.effect(moved[i], i)
    effect -= effect.mean()
    check_largest(found["promoted"], effect, 1e-3)
    check_largest([[index, -each] for index, each in found["suppressed"]], -effect, 1e-3)


@DRAWN
@given(case=cases(), data=st.data())
def test_neurons(engine: Call, case: Case, data: st.DataObject) -> None:
    """Their outputs, and the logits that one changes most; also with parts switched off."""
    model, ids = case
    config, off = model.config, data.draw(either(model.config))
    i = data.draw(st.integers(0, len(ids) - 1))
    layer = data.draw(st.integers(0, config.n_layers - 1))
    neuron = data.draw(st.integers(0, config.d_mlp - 1))
    code = f"""async (x) => {{
        const reading = await ({READING})(x);
        const found = neuronInText(reading, x.layer, x.neuron, 5);
        return {{ ...found, values: [...found.values], strongest: strongest(reading, x.i, 5) }};
    }}"""
    place = {"layer": layer, "neuron": neuron, "i": i}
    found = engine(code, {"packed": packed(model, ids), "ids": ids, "off": off, **place})
    inside = Inside(model, ids, off or NOTHING)
    largest = torch.stack(inside.neurons)[:, i].abs()
    rows = [
        [each["layer"] * config.d_mlp + each["neuron"], abs(each["value"])]
        for each in found["strongest"]
    ]
    check_largest(rows, largest.flatten(), 1e-4)
    values = inside.neurons[layer][:, neuron]
    np.testing.assert_allclose(found["values"], values, atol=1e-4)
    most = int(np.abs(found["values"]).argmax())
    mlp: Any = blocks(model)[layer].mlp
    effect = inside.effect(values[most] * mlp.down.weight[:, neuron].double(), most)
    for sign, tokens in ((1, found["raised"]), (-1, found["lowered"])):
        rows = [[token, sign * effect[token].item()] for token in tokens]
        check_largest(rows, sign * effect, 1e-4)
