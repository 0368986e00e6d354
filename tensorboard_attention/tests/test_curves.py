"""The scores of all steps, from a log and from a page, and how the tab draws them; and wiring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright import sync_api
from torch import Tensor

from tensorboard_attention import encode
from tensorboard_attention.tests.conftest import OpenTab, Tab, log, module, served
from tensorboard_attention.tests.events import HEADER, MAPS, TOKENS, event, write

CODE = """async (headers) => {
    const { Logs, Embedded } = await import("/source.js");
    const entries = headers.map((_, step) => ({ tag: "probe", step }));
    const found = [];
    for (const source of [new Logs(), new Embedded({ run: ".", entries }, headers)]) {
        const { values, ...rest } = await source.scores(".", "probe");
        found.push({ ...rest, values: [...values] });
    }
    return found;
}"""


def header(
    scores: dict[str, list[Any]], measured: dict[str, str], text: str, like: dict[str, Any] = HEADER
) -> dict[str, Any]:
    """Of one layer with as many heads as there are values."""
    layers = {name: [values] for name, values in scores.items()}
    return {**like, "scores": layers, "measured": measured, "tokens": [*text]}


def test_curves_are_found_by_name_text_and_heads(tmp_path: Path, browser: sync_api.Browser) -> None:
    """Those of the last step, and those that only earlier ones with as many heads have."""
    tales, here = {"a": "tales"}, {"a": "this text"}
    other = json.loads(encode([MAPS[0][:, :1]], TOKENS)[0])  # of another model
    headers = [
        header({"a": [1, 2], "b": [3, 4]}, tales, "abc"),
        header({"b": [5, None]}, {}, "abc"),
        header({"b": [6], "a": [7], "d": [8]}, tales, "abc", other),
        header({"a": [9, 10], "c": [11, 12]}, here, "abd"),
        header({"a": [13, 14], "c": [15, 16]}, {"c": "tales"}, "abd"),
        header({"b": [17, 18], "a": [19, 20]}, tales, "abc"),
    ]
    write(tmp_path, *(event(step, header) for step, header in enumerate(headers)))
    answer = served(tmp_path)("/scores", run=".", tag="probe")[1]
    page = browser.new_page()
    page.route("**/*.js", module)
    page.route("**/scores?*", lambda route: route.fulfill(body=answer))
    page.route("http://tab/", lambda route: route.fulfill(body="", content_type="text/html"))
    page.goto("http://tab/")
    log, embedded = page.evaluate(CODE, headers)
    page.close()
    none = np.nan
    for found in (log, embedded):
        assert found["names"] == ["b", "a", "c"] and found["heads"] == [2]
        assert found["steps"] == [*range(6)]
        texts = [text == found["texts"][0] for text in found["texts"]]
        assert texts == [True, True, True, False, False, True]
        np.testing.assert_array_equal(
            np.reshape(found["values"], (6, 6)),
            [
                [3, 4, 1, 2, none, none],
                [5, none, none, none, none, none],
                [none] * 6,
                [none] * 6,
                [none, none, none, none, 15, 16],
                [17, 18, 19, 20, none, none],
            ],
        )


@pytest.mark.long
def test_scores_and_curves_are_those_that_were_logged(logs: Path, open_tab: OpenTab) -> None:
    for step, mine in enumerate((0.25, 0.75, 0.5)):
        log(logs / "scored", step, scores={"mine": [[mine, mine]] * 2})
    tab = open_tab(run="scored", layer=0, head=1)
    score = tab["[data-score=mine]"]
    assert score.locator("b").inner_text() == "0.500"
    curve = score.locator("polyline").get_attribute("points") or ""
    assert score.locator(".bounds").inner_text().split() == ["1", "0"]
    low, high, middle = (float(point.split(",")[1]) for point in curve.split())
    assert low > middle > high and middle == pytest.approx((low + high) / 2, abs=0.1)
    assert score.locator(".meaning").count() == 0


@pytest.mark.long
def test_a_curve_is_cut_where_the_text_changes(logs: Path, open_tab: OpenTab) -> None:
    for text, steps in (("abcabcabcabc", (0, 5)), ("xyzxyzxy", (10, 15, 20))):
        scores = {"elsewhere": [[0.1] * 2] * 2, "here": [[0.7] * 2] * 2}
        where = {"elsewhere": "4 tales"}  # where `here` was measured is not known
        log(logs / "two texts", *steps, tokens=text, scores=scores, measured=where)
    tab = open_tab(run="two texts")
    for score, lengths in (("entropy", [2, 3]), ("here", [2, 3]), ("elsewhere", [5])):
        card = tab[f"[data-score={score}]"]
        card.locator("polyline").first.wait_for(state="attached")
        pieces = card.locator("polyline").evaluate_all(
            "all => all.map(each => each.getAttribute('points').split(' ').length)"
        )
        assert pieces == lengths
        cut = ["cut at step 10, where the text changes"] * (len(lengths) - 1)
        assert card.locator(".differs").all_inner_texts() == cut


def wires(key: float) -> Tensor:
    """L1H0 reads L0H1 through its keys, and the MLP through its queries; L1H1 reads L0H0."""
    found = torch.zeros(3, 2, 2, 2, 3)
    found[1, 1, 0, 0, 1] = key
    found[0, 1, 0, 0, 2] = 0.9
    found[2, 1, 1, 0, 0] = -0.25
    return found


def labels(tab: Tab) -> list[str]:
    return tab[".wiring .edge"].evaluate_all("all => all.map((one) => one.ariaLabel)")


def test_edges_follow_the_step_and_select_both_heads(logs: Path, open_tab: OpenTab) -> None:
    for step, share in ((0, 0.01), (10, 0.62)):
        log(logs / "wired", step, measured={"wiring": "a song"}, wiring=wires(share))
    tab = open_tab(run="wired", layer=0, head=0)
    said, slider = tab[".wiring output"], tab["input[type=range] >> nth=0"]
    key = "L0H1 to L1H0, key: 62%"
    assert {*labels(tab)} == {"L0 MLP to L1H0, query: 90%", key, "L0H0 to L1H1, value: -25%"}
    assert tab[".wiring .against.edge"].count() == 1
    edge = tab[f'.wiring [aria-label="{key}"]']
    assert tab[".wiring .note >> nth=0"].inner_text().endswith(" Measured on a song.")
    edge.dispatch_event("pointerenter")
    sync_api.expect(said).to_have_text("L0H1 → L1H0, key: 62%")
    edge.dispatch_event("click")
    sync_api.expect(tab['.head[aria-label="layer 1, head 0"]']).to_have_attribute(
        "aria-pressed", "true"
    )
    sync_api.expect(tab[".cell.marked .head"]).to_have_attribute("aria-label", "layer 0, head 1")
    assert tab[".reads li"].all_inner_texts() == ["90% L0 MLP", "62% L0H1"]
    slider.fill("0")
    tab.shown(["wired", "probe", 0])
    sync_api.expect(said).to_have_text("L0H1 → L1H0, key: below 5%")
    assert len(labels(tab)) == 2
    tab['.head[aria-label="layer 1, head 1"]'].click()
    sync_api.expect(tab[".cell.marked"]).to_have_count(0)
