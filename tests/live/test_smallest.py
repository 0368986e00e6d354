"""The smallest part that answers: the numbers of `circuit` in Python, and what the page makes of
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
import torch
from playwright import sync_api

from inference.opening import open_run
from model import circuit
from tests.conftest import TINY, small_config, succeed
from tests.exchange.families import FAMILIES
from tests.live.conftest import Call
from tests.live.drawn import build, ids_for, means_over, packed
from tests.live.pages import Live

TRY = """async ({ packed, ...question }) =>
    [...tryParts(await load(packed), question)].at(-1).found"""
TEXT = "Once there was a hen. The hen"


def python_part(part: dict[str, Any]) -> Any:
    return f"mlp {part['layer']}" if part["head"] is None else (part["layer"], part["head"])


@pytest.mark.parametrize("by", ["zero", "mean"])
@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_are_those_of_python(engine: Call, family: str, by: str) -> None:
    """Of a text with more tokens than are read at once, and heads that share keys and values."""
    sizes = {"n_kv_heads": 2, "d_head": 6, "d_mlp": 20}
    model = build(small_config(2, 4, 24, 50, **sizes, **FAMILIES[family]), 60, seed=3)
    model.get_parameter("final_norm.weight").mul_(5)  # for probabilities that differ
    ids = ids_for(model, 45, seed=2)
    means = means_over(model, ids[:20])
    expected = circuit(model, torch.tensor(ids), means if by == "mean" else "zero")
    question = {"ids": ids, "by": by, "target": expected.target}
    found = engine(TRY, {"packed": packed(model, ids[:20]), **question})
    assert tuple(map(python_part, found["parts"])) == expected.parts
    best = expected.best()
    values = [value for _, value, _ in found["best"]]
    np.testing.assert_allclose(values, [value for _, value in best], atol=1e-4)
    np.testing.assert_allclose(found["shapley"], expected.shapley(), atol=1e-4)
    np.testing.assert_allclose(found["alone"], expected.alone(), atol=1e-4)
    interactions = expected.interactions()
    for i, j, value in found["interactions"]:
        assert value == pytest.approx(interactions[i, j].item(), abs=1e-4)
    assert len(found["interactions"]) == 45 and abs(interactions).max() > 0.02


def test_of_many_parts_those_that_matter_most_are_tried(engine: Call) -> None:
    model = build(small_config(6, 2, 8, 4, d_mlp=8, **FAMILIES["gpt2"]), 7, seed=1)
    ids = [1, 2, 3]
    expected = circuit(model, torch.tensor(ids), "zero", parts=16)
    question = {"ids": ids, "by": "zero", "target": expected.target}
    found = engine(TRY, {"packed": packed(model), **question})
    assert tuple(map(python_part, found["parts"])) == expected.parts
    np.testing.assert_allclose(found["shapley"], expected.shapley(), atol=1e-4)


def test_a_model_that_is_not_finite_has_none(engine: Call) -> None:
    model = build(small_config(1, 2, 8, 4), 7, seed=1)
    model.get_parameter("final_norm.weight")[0] = float("nan")
    code = f"(question) => ({TRY})(question).catch(({{ message }}) => message)"
    question = {"ids": [1, 2], "by": "zero", "target": 3}
    said = engine(code, {"packed": packed(model), **question})
    assert said == "The probability of this token is not finite."


def test_a_set_is_chosen_and_writes_on(
    site: str, browser: sync_api.Browser, tiny_run: Path
) -> None:
    live = Live(browser, site)
    live.type(TEXT)
    live[".by select"].select_option("zero")
    live[".grid .head >> nth=1"].click()
    live.off("L0H1")  # which changes nothing here
    look = live.open("The smallest part that answers")
    opened = open_run(tiny_run, "last")
    tokens = opened.tokens(TEXT)
    expected = circuit(opened.model, tokens, "zero")
    sets = look.locator(".sets button")
    shown = [float(text.strip("<%")) for text in look.locator(".sets b").all_inner_texts()]
    assert shown == pytest.approx([100 * value for _, value in expected.best()], abs=0.06)
    assert sets.nth(6).locator(".kinds span").all_inner_texts() == expected.names
    texts = look.locator(".compared b").all_inner_texts()
    adds = [text.replace("\N{MINUS SIGN}", "-").split(" · ") for text in texts]
    order = sorted(zip(expected.shapley(), expected.alone(), strict=True), reverse=True)
    np.testing.assert_allclose(np.array(adds, float), 100 * np.array(order), atol=0.06)
    live.click(sets.nth(2))
    off = live[".offlist li"].all_inner_texts()
    on = sets.nth(2).locator(".kinds span").all_inner_texts()
    assert sets.nth(2).get_attribute("aria-current") is not None
    assert len(on) == 2 and look.locator("[aria-current]").count() == 1
    shares = live[".next .bars b"].all_inner_texts()
    assert any(text.endswith(f"→ {shown[2]:.1f}%") for text in shares), "it is what comes next now"
    live[".settings summary"].click()
    live[".settings input >> nth=4"].fill("5")
    live[".settings input >> nth=4"].press("Tab")
    live[".write"].click()
    assert live.written().startswith(TEXT)
    assert live[".offlist li"].all_inner_texts() == off, "and writes so"
    look.locator(".bars").first.wait_for()
    live.close()


def test_above_16_parts_it_offers_those_that_matter_most(
    tmp_path: Path, browser: sync_api.Browser
) -> None:
    few = (*TINY, "model.n_layers=6", "trainer.max_steps=1", "run_dir=run")
    succeed("train", *few, cwd=tmp_path)
    succeed("look", "run=run", "html=live.html", cwd=tmp_path)
    live = Live(browser, (tmp_path / "live.html").as_uri())
    live.type("Ben")
    look = live["details:has-text('The smallest part')"]
    live.click(look.locator("summary"))
    assert "18 parts: 2^18 ways are too many" in look.inner_text()
    offer = look.locator("button:has-text('Try the 16 parts that matter most')")
    offer.click()
    look.locator("button:has-text('Stop')").click()
    offer.click()
    look.locator(".sets").wait_for()
    assert look.locator(".sets button").count() == 17
    look.locator(".sets button >> nth=0").click()
    live.settled()
    live.page.wait_for_url("**mlps=**")
    link = parse_qs(live.page.evaluate("location.hash.slice(1)"))
    assert sum(len(link[kind][0].split(",")) for kind in ("heads", "mlps")) == 16
    live.close()
