"""The model of the page against that of PyTorch: the same numbers, however a text was read, and
what the page shows of its inside."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model import GPT, edit, explain_score, record_attention
from model.gpt import blocks_of
from observe.evidence import record_neurons
from tests.live.conftest import Call
from tests.live.drawn import Case, Off, cases, ids_for, packed, switched_off, switches, triangle

DRAWN = settings(max_examples=20)
LOGITS = 1e-3  # largest differences from PyTorch
WEIGHTS = 2e-5  # the page computes in float32: 1.03e-5 was seen, in drawn models
SHOWN = """(reading) => ({
    logits: reading.tokens.map((_, i) => reading.logits(i)),
    weights: reading.layers.map(({ weights }, layer) =>
        weights.map((_, head) => reading.weights(layer, head))),
    losses: reading.losses(),
})"""


def check(found: Any, model: GPT, ids: list[int]) -> None:
    """What a reading shows is what PyTorch computes in one pass: in float64, so that only the
    rounding of the page remains."""
    tokens = torch.tensor([ids])
    with record_attention(model.double()) as layers:
        logits = model(tokens)[0]
    model.float()
    np.testing.assert_allclose(found["logits"], logits, atol=LOGITS)
    for layer, weights_of in enumerate(layers):
        for head in range(model.config.n_heads):
            weights = triangle(weights_of[0, head])
            np.testing.assert_allclose(found["weights"][layer][head], weights, atol=WEIGHTS)
    losses = F.cross_entropy(logits[:-1], tokens[0, 1:], reduction="none")
    np.testing.assert_allclose(found["losses"], [np.nan, *losses], atol=LOGITS)


READ = f"""async ({{ packed, ids, cuts, other }}) => {{
    const reading = new Reading(await load(packed));
    finished(reading.follow(other));
    reading.losses();
    for (const end of [...cuts, ids.length]) finished(reading.follow(ids.slice(0, end)));
    return ({SHOWN})(reading);
}}"""


@DRAWN
@given(case=cases(), data=st.data())
def test_logits_and_attention(engine: Call, case: Case, data: st.DataObject) -> None:
    """Of a text that was read in parts, and before it another with the same start."""
    model, ids = case
    place = st.integers(0, len(ids))
    cuts = sorted(data.draw(st.lists(place, max_size=3)))
    kept = data.draw(place)
    other = [*ids[:kept], *ids_for(model, len(ids) - kept, data.draw(place))]
    drawn = {"cuts": cuts, "other": other}
    check(engine(READ, {"packed": packed(model), "ids": ids, **drawn}), model, ids)


ABLATED = f"""async ({{ packed, ids, off, cut }}) => {{
    const intact = new Reading(await load(packed));
    finished(intact.read(ids));
    const reading = new Reading(intact.model, off);
    finished(reading.read(ids.slice(0, cut)));
    finished(reading.read(ids.slice(cut)));
    const switched = finished(intact.switched(off, Math.min(...changed(off))));
    const again = switched.copy();
    again.truncate(cut);
    finished(again.read(ids.slice(cut)));
    return [reading, switched, again].map({SHOWN});
}}"""


@DRAWN
@given(case=cases(), data=st.data())
def test_ablation(engine: Call, case: Case, data: st.DataObject) -> None:
    """Read with parts switched off, or switched off later; means are over the text itself."""
    model, ids = case
    off = data.draw(switches(model.config))
    cut = data.draw(st.integers(0, len(ids)))
    readings = engine(ABLATED, {"packed": packed(model, ids), "ids": ids, "off": off, "cut": cut})
    with switched_off(model, ids, off):
        for found in readings:
            check(found, model, ids)


class Inside:
    """A text and a place in it, parts of a model, and what is off; and what PyTorch computes there:
    every part of the stream at each token, in double precision."""

    def __init__(self, case: Case, off: Off | None, place: dict[str, int]) -> None:
        self.model, self.ids = model, ids = case
        self.off, config, tokens = off, model.config, torch.tensor([ids])
        self.asked = {"packed": packed(model, ids), "ids": ids, "off": off, **place}
        self.layer, self.head, self.neuron, self.token, self.i, self.j = place.values()
        layers = range(config.n_layers)
        parts: list[Any] = [(layer, head) for layer in layers for head in range(config.n_heads)]
        parts += [f"stream {layer}" for layer in (*layers, config.n_layers)]
        parts += [f"mlp {layer}" for layer in layers]
        self.seen: dict[Any, Tensor] = {}

        def keep(part: Any, value: Tensor) -> Tensor:
            self.seen[part] = value[0].double()
            return value

        with (
            switched_off(model, ids, off),  # before it is seen
            record_attention(model, keep="value") as values,
            record_neurons(model) as (neurons, _),
            edit(model, {part: partial(keep, part) for part in parts}),
        ):
            self.logits = model(tokens)[0].double()
        self.values = [each[0].double() for each in values]
        self.neurons = torch.stack(neurons)[:, 0].double()  # layer, token, neuron
        self.embedding = model.token_embedding.weight[tokens[0]].double()

    def columns(self, layer: int, head: int) -> Tensor:
        """The part of the output matrix that belongs to a head."""
        weight = blocks_of(self.model)[layer].attention.output.weight.double()
        return weight.split(self.model.config.d_head, 1)[head]

    def effect(self, part: Tensor, i: int) -> Tensor:
        """On the logits after token i: the final norm has the scale that it has there."""
        norm, x = self.model.final_norm, self.seen[f"stream {self.model.config.n_layers}"][i]
        if isinstance(norm, torch.nn.LayerNorm):
            part, x = part - part.mean(), x - x.mean()
        scaled = part / (x.square().mean() + self.model.config.norm_eps).sqrt()
        gain = norm.get_parameter("weight").double()
        return self.model.unembedding.weight.double() @ (scaled * gain)


@st.composite
def insides(draw: st.DrawFn) -> Inside:
    model, ids = case = draw(cases())
    config = model.config
    sizes = {"layer": config.n_layers, "head": config.n_heads, "neuron": config.d_mlp}
    sizes |= {"token": model.vocab_size, "i": len(ids)}
    place = {name: draw(st.integers(0, size - 1)) for name, size in sizes.items()}
    place["j"] = draw(st.integers(0, place["i"]))
    return Inside(case, draw(st.none() | switches(config)), place)


def asking(code: str) -> str:
    """The answer of `code` about a place, of a `reading` of its text."""
    return f"""async ({{ packed, ids, off, layer, head, neuron, token, i, j }}) => {{
        let reading = new Reading(await load(packed));
        finished(reading.read(ids));
        if (off) reading = finished(reading.switched(off, Math.min(...changed(off))));
        return {code};
    }}"""


@DRAWN
@given(inside=insides())
def test_terms_of_a_score(engine: Call, inside: Inside) -> None:
    """They are those of `explain_score`."""
    found = engine(asking("scoreTerms(reading, layer, head, i, j)"), inside.asked)
    model, ids, head = inside.model, torch.tensor(inside.ids), (inside.layer, inside.head)
    with switched_off(model, inside.ids, inside.off):
        expected = explain_score(model, ids, head, inside.i, inside.j)
    terms = {(term["query"], term["key"]): term["value"] for term in found}
    if not model.config.bias:
        expected = {names: term for names, term in expected.items() if "biases" not in names}
    assert terms == pytest.approx(expected, abs=1e-4, rel=1e-4)


@DRAWN
@given(inside=insides())
def test_parts_sum_to_the_logit(engine: Call, inside: Inside) -> None:
    """And each of them is what it adds."""
    found = engine(asking("attribution(reading, i, token)"), inside.asked)
    config, seen = inside.model.config, inside.seen

    def effect(part: Tensor) -> float:
        return inside.effect(part[inside.i], inside.i)[inside.token].item()

    expected = {"embedding": effect(inside.embedding)}
    if config.position == "learned":
        expected["position"] = effect(seen["stream 0"] - inside.embedding)
    for layer in range(config.n_layers):
        for head in range(config.n_heads):
            written = seen[layer, head] @ inside.columns(layer, head).T
            expected[f"L{layer}H{head}"] = effect(written)
        expected[f"L{layer} MLP"] = effect(seen[f"mlp {layer}"])
    logit = inside.logits[inside.i, inside.token].item()
    if config.bias:
        expected["biases"] = logit - sum(expected.values())
    assert dict(found["parts"]) == pytest.approx(expected, abs=1e-4)
    assert abs(found["logit"] - logit) < 1e-3


@DRAWN
@given(inside=insides())
def test_lens(engine: Call, inside: Inside) -> None:
    found, model = engine(asking("lens(reading, i, 5)"), inside.asked), inside.model
    assert len(found) == model.config.n_layers
    for layer, row in enumerate(found, 1):
        stream = inside.seen[f"stream {layer}"][inside.i]
        logits = model.unembedding(model.final_norm(stream.float()))
        check_largest(row, logits.softmax(-1), 1e-4)


def check_largest(found: list[list[float]], values: Tensor, most: float) -> None:
    """These are the five largest of the values, with their index, up to rounding."""
    assert len(found) == min(5, len(values)) == len({index for index, _ in found})
    largest = values.sort(descending=True).values[:5]
    np.testing.assert_allclose([value for _, value in found], largest, atol=most)
    np.testing.assert_allclose([values[int(index)] for index, _ in found], largest, atol=most)


@DRAWN
@given(inside=insides())
def test_circuit_and_what_is_moved(engine: Call, inside: Inside) -> None:
    code = "[circuit(reading, layer, head, i, 5), [...reading.valueNorms(layer, head)]]"
    found, norms = engine(asking(code), inside.asked)
    config, layer, head = inside.model.config, inside.layer, inside.head
    value = inside.values[layer][head * config.n_kv_heads // config.n_heads]
    moved = value @ inside.columns(layer, head).T
    np.testing.assert_allclose(norms, moved.norm(dim=-1), atol=1e-4)
    effect = inside.effect(moved[inside.i], inside.i)
    effect -= effect.mean()
    check_largest(found["promoted"], effect, 1e-3)
    check_largest([[index, -each] for index, each in found["suppressed"]], -effect, 1e-3)


@DRAWN
@given(inside=insides())
def test_neurons(engine: Call, inside: Inside) -> None:
    """Their outputs, and the logits that one changes most."""
    code = "[strongest(reading, i, 5), neuronInText(reading, layer, neuron, 5)]"
    strongest, found = engine(asking(code), inside.asked)
    d_mlp, layer, neuron = inside.model.config.d_mlp, inside.layer, inside.neuron
    rows = [[each["layer"] * d_mlp + each["neuron"], abs(each["value"])] for each in strongest]
    check_largest(rows, inside.neurons[:, inside.i].abs().flatten(), 1e-4)
    values, shown = inside.neurons[layer, :, neuron], found["values"]
    np.testing.assert_allclose(shown, values, atol=1e-4)
    most = int(np.abs(shown).argmax())
    mlp: Any = blocks_of(inside.model)[layer].mlp
    effect = inside.effect(values[most] * mlp.down.weight[:, neuron].double(), most)
    for sign, tokens in ((1, found["raised"]), (-1, found["lowered"])):
        rows = [[token, sign * effect[token].item()] for token in tokens]
        check_largest(rows, sign * effect, 1e-4)
