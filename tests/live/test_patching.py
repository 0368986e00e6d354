"""Patching in the page against `patch` in Python, and what it ranks against an explicit loop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from playwright import sync_api
from torch import Tensor

from data.tales_grammar import BOYS, FORMS, GIRLS, WORDS
from inference.opening import open_run
from launch.schema import preset
from live.texts import name_groups, spare_corpus
from model import GPT, patch
from tests.live.conftest import DRAWN, SHOWN, Call, check
from tests.live.drawn import Case, blocks, build, cases, ids_for, packed, switched_off, switches
from tests.live.pages import Live

Patch = dict[str, Any]  # {kind, layer, head, places}, as the page says it
KINDS = ["stream", "head", "mlp"]  # in the order of a block


def python_name(part: Patch) -> Any:
    """As the part is called in Python."""
    if part["kind"] == "head":
        return part["layer"], part["head"]
    return f"{part['kind']} {part['layer']}"


def values_of(model: GPT, ids: list[int]) -> dict[Any, Tensor]:
    """What each part computes, by hooks."""
    found: dict[Any, Tensor] = {}
    hooks = []

    def gathered(layer: int, joined: Tensor) -> None:
        for head, value in enumerate(joined.split(model.config.d_head, dim=-1)):
            found[layer, head] = value

    def before(module: torch.nn.Module, name: str) -> None:
        save = lambda _, x: found.update({name: x[0]})  # noqa: E731
        hooks.append(module.register_forward_pre_hook(save))

    def after(module: torch.nn.Module, name: str) -> None:
        save = lambda _, x, y: found.update({name: y})  # noqa: E731
        hooks.append(module.register_forward_hook(save))

    for layer, block in enumerate(blocks(model)):
        before(block, f"stream {layer}")
        joined = lambda _, x, layer=layer: gathered(layer, x[0])  # noqa: E731
        hooks.append(block.attention.output.register_forward_pre_hook(joined))
        after(block.mlp, f"mlp {layer}")
    before(model.final_norm, f"stream {model.config.n_layers}")
    model(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    return found


@contextmanager
def patched(model: GPT, ids: list[int], other: list[int], patches: list[Patch]) -> Iterator[None]:
    """Inside, the parts have the values of the other text at their places. Each part is patched as
    a whole, with the values that it has after what comes before it in the model was patched."""
    theirs = values_of(model, other)
    values: dict[Any, Tensor] = {}
    for part in sorted(patches, key=lambda each: (each["layer"], KINDS.index(each["kind"]))):
        name, places = python_name(part), part["places"]
        with patch(model, values):
            value = values_of(model, ids)[name].clone()
        value[:, places] = theirs[name][:, places]
        values[name] = value
    with patch(model, values):
        yield


@st.composite
def parts(draw: st.DrawFn, case: Case) -> list[Patch]:
    config = case.model.config
    layers = st.integers(0, config.n_layers - 1)
    heads = st.tuples(st.just("head"), layers, st.integers(0, config.n_heads - 1))
    mlps = st.tuples(st.just("mlp"), layers, st.just(0))
    streams = st.tuples(st.just("stream"), st.integers(0, config.n_layers), st.just(0))
    chosen = draw(st.lists(heads | mlps | streams, min_size=1, max_size=4, unique=True))
    places = st.lists(st.integers(0, len(case.ids) - 1), min_size=1, unique=True)
    return [
        {"kind": kind, "layer": layer, "head": head, "places": draw(places)}
        for kind, layer, head in chosen
    ]


PATCHED = f"""async ({{ packed, ids, other, off, patches, cut }}) => {{
    const model = await load(packed);
    const intact = new Reading(model);
    intact.read(ids);
    const switched = off ?? {{ by: "zero", heads: [], mlps: [] }};
    if (off?.by === "mean") off.means = means(intact, off);
    const read = (tokens, ...edits) => {{
        const reading = new Reading(model, switched, ...edits);
        reading.read(tokens.slice(0, cut));
        reading.read(tokens.slice(cut));
        return reading;
    }};
    const source = read(other);
    const given = patches.map((each) => ({{ ...each, source }}));
    const later = finished(read(ids).patched(given));
    return [read(ids, given), later, later.copy()].map({SHOWN});
}}"""


@DRAWN
@given(case=cases(), data=st.data())
def test_patching(engine: Call, case: Case, data: st.DataObject) -> None:
    """Of a text that is read with patches, or patched later; also with parts switched off in both
    texts, where means are over the first."""
    model, ids = case
    other = ids_for(model, len(ids), seed=data.draw(st.integers(0, 10**6)))
    patches = data.draw(parts(case))
    off = data.draw(st.none() | switches(model.config))
    argument: dict[str, Any] = {"packed": packed(model), "ids": ids, "other": other, "off": off}
    argument |= {"patches": patches, "cut": data.draw(st.integers(0, len(ids)))}
    constant: dict[Any, Tensor] = {}  # what is off, as patches
    if off:
        with switched_off(model, ids, off):
            values = values_of(model, ids)
        heads = [(layer, head) for layer, head in off["heads"]]
        constant = {name: values[name] for name in [*heads, *(f"mlp {i}" for i in off["mlps"])]}
    with patch(model, constant), patched(model, ids, other, patches):
        for found in engine(PATCHED, argument):
            check(found, model, ids)


def share(model: GPT, ids: list[int], other: list[int], part: Patch, i: int) -> float:
    """The normalized logit difference of the best guesses after token i."""
    ours, theirs = (model(torch.tensor([each]))[0, i] for each in (ids, other))
    with patched(model, ids, other, [part]):
        logits = model(torch.tensor([ids]))[0, i]
    a, b = int(ours.argmax()), int(theirs.argmax())
    none, whole = ours[b] - ours[a], theirs[b] - theirs[a]
    return float((logits[b] - logits[a] - none) / (whole - none))


EACH = """async ({ packed, ids, other, i, parts }) => {
    const model = await load(packed);
    const [ours, theirs] = [ids, other].map((tokens) => {
        const reading = new Reading(model);
        reading.read(tokens);
        return reading;
    });
    const pair = new TextPair(ours, theirs, i);
    return [pair.answers, [...pair.each(parts)].filter(Boolean)];
}"""


@pytest.mark.parametrize("name", ["nano", "nano_gpt2"])
def test_how_much_of_the_answer_comes_over(engine: Call, name: str) -> None:
    """With each head, each MLP, and the stream before each layer at each token."""
    model = build(preset("model", name, n_layers=3, d_model=32), 50, seed=1)
    ids, other = ids_for(model, 12, seed=2), ids_for(model, 12, seed=3)
    ours, theirs = (model(torch.tensor([each]))[0] for each in (ids, other))
    i = max(i for i in range(11) if ours[i].argmax() != theirs[i].argmax())
    every = [*range(12)]
    heads = [("head", layer, head, every) for layer, head in np.ndindex(3, 4)]
    mlps = [("mlp", layer, 0, every) for layer in range(3)]
    streams = [("stream", layer, 0, [place]) for layer, place in np.ndindex(4, 12)]
    names = ("kind", "layer", "head", "places")
    parts = [dict(zip(names, each, strict=True)) for each in (*heads, *mlps, *streams)]
    argument = {"packed": packed(model), "ids": ids, "other": other, "i": i, "parts": parts}
    answers, found = engine(EACH, argument)
    a, b = ours[i].argmax(), theirs[i].argmax()
    assert i >= 5 and answers == [a, b]
    expected = [share(model, ids, other, part, i) for part in parts]
    assert [each["at"] for each in found] == [*range(len(parts))]
    shares = [each["share"] for each in found]
    np.testing.assert_allclose(shares, expected, atol=1e-3)
    assert min(shares) < -0.02
    assert shares[i - 12] == pytest.approx(1, abs=1e-3)  # the stream after the last layer


def test_names_that_stand_for_one_another() -> None:
    """They have the same pronouns and are names of the same part of a tale."""
    groups = name_groups(spare_corpus())
    assert sorted(name for names in groups for name in names) == sorted([*GIRLS, *BOYS])
    for names in groups:
        assert len({FORMS["he"](name) for name in names}) == 1
        assert {*names} <= {*WORDS["hero"]} or {*names} <= {*WORDS["friend"]}
    assert name_groups(None) == []


EXCHANGED = """({ exchanged }, { text, guess, length }) =>
    exchanged(text, [["Ida", "Lucy", "Zoe"], ["Ben", "Gus", "Otto"]], guess,
        (each) => length ? each.length : 0)"""


@pytest.mark.parametrize(
    ("text", "guess", "length", "expected"),
    [
        ("Ben met Ida. Ben's hat", "", True, "Gus met Ida. Gus's hat"),
        ("Ben met Ida. Ben", "Id", True, "Ben met Zoe. Ben"),
        ("Ben met Ida. Ben", "Id", False, "Ben met Lucy. Ben"),
        ("Benny saw a hen.", "B", True, None),
    ],
)
def test_a_name_is_exchanged(
    module: Call, text: str, guess: str, length: bool, expected: str | None
) -> None:
    """That of the best guess rather than others, and by one of the same kind where it can be."""
    found = module("second.js", EXCHANGED, {"text": text, "guess": guess, "length": length})
    assert (found and found["text"]) == expected


TEXT = "There was Ben. Ben"
SECOND = "There was Dan. Dan"


def shown(live: Live, selector: str) -> list[int]:
    """Percentages."""
    texts = live[selector].all_inner_texts()
    found = [re.search(r"[-\d]+", text.replace("\N{MINUS SIGN}", "-")) for text in texts]
    return [int(each[0]) if each else 0 for each in found]


def test_patching_in_the_page(site: str, browser: sync_api.Browser, tiny_run: Path) -> None:
    """A button makes the second text; a bar, a ranking and a table show what comes over."""
    opened = open_run(tiny_run, "last")
    model = opened.model.requires_grad_(False)
    ids, other = (opened.tokenizer.encode(f"\n\n{text}") for text in (TEXT, SECOND))
    last, every = len(ids) - 1, [*range(len(ids))]

    def expected(kind: str, layer: int, head: int, places: list[int]) -> float:
        part = {"kind": kind, "layer": layer, "head": head, "places": places}
        return 100 * share(model, ids, other, part, last)

    live = Live(browser, site)
    live.type(TEXT)
    summary = live["summary:has-text('What carries the answer')"]
    summary.click()
    live.settled()
    live["button:has-text('The same tale with Dan for Ben')"].click()
    live[".outcome"].wait_for()
    live.settled()
    assert live["textarea >> nth=1"].input_value() == SECOND
    live[".outcome select >> nth=0"].select_option("MLP of layer 1")
    live.settled()
    bar = ".outcome > div > .bars >> nth=0"
    assert shown(live, f"{bar} >> b") == [pytest.approx(expected("mlp", 1, 0, every), abs=0.6)]
    live["button:has-text('Patch every head')"].click()
    live["button:has-text('Patch every head')"].wait_for()
    heads = [expected("head", layer, head, every) for layer, head in np.ndindex(2, 2)]
    mlps = [expected("mlp", layer, 0, every) for layer in range(2)]
    ranked = sorted([*heads, *mlps], key=lambda each: -abs(each))
    assert shown(live, ".signed b") == pytest.approx(ranked, abs=0.6)
    live["button:has-text('Patch the stream')"].click()
    live["button:has-text('Patch the stream')"].wait_for()
    places = [
        at for at in every if at >= [a == b for a, b in zip(ids, other, strict=True)].index(False)
    ]
    cells = [expected("stream", layer, 0, [at]) for layer in range(3) for at in places]
    assert shown(live, ".outcome td") == pytest.approx(cells, abs=0.6)
    live[".outcome td >> nth=0"].focus()
    live.page.keyboard.press("ArrowDown")
    live.press("Enter")
    live[".outcome td[aria-current]"].wait_for()
    assert shown(live, f"{bar} >> b") == shown(live, ".outcome td[aria-current]")
    before = live[".outcome"].inner_text().split("Measured")[0]
    live.page.wait_for_url("**&at=*")
    again = Live(browser, live.page.url)
    again[".outcome"].wait_for()
    again.settled()
    assert again[".outcome"].inner_text().split("Measured")[0] == before
    again.page.context.close()
    live["textarea >> nth=1"].fill(f"{SECOND} sat")
    live.settled()
    assert live[".outcome"].is_hidden()
    more = len(opened.tokenizer.encode(f"\n\n{SECOND} sat"))
    counts = f"Tokens: {more} in the second text, {len(ids)} in the first."
    assert live[".guesses"].inner_text().startswith(counts)
    live["button:has-text('A copy of the text')"].click()
    live.settled()
    assert "the same up to here" in live[".guesses"].inner_text()
    live.close()
