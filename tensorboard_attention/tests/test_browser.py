"""The Attention tab in a real browser."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch
from PIL import Image
from playwright import sync_api

from tensorboard_attention import encode
from tensorboard_attention.tests.conftest import (
    HOSTILE,
    ODD_RUN,
    REFRESH,
    OpenTab,
    causal_maps,
    log,
    shown_byte,
    tensorboard,
)


def test_an_empty_log_shows_how_to_log_maps(tmp_path: Path, opened: OpenTab) -> None:
    tab = opened(f"{tensorboard(tmp_path)}#attention", frame=True)
    said = tab["main"].inner_text()
    assert "No attention maps yet" in said and "add_attention" in said


def test_runs_and_steps_are_listed(open_tab: OpenTab, url: str) -> None:
    tab = open_tab()
    assert tab.shown() == [["trained", "attention", 6]], "the newest run at its last step"
    runs = tab[".picker select >> nth=0"].locator("option").all_inner_texts()
    assert {ODD_RUN, "trained"} <= set(runs) and "scalars alone" not in runs
    assert tab[".stepper output >> nth=0"].inner_text() == "6 (3 of 3)"
    assert tab[".head"].count() == 4 and tab[".kinds span"].count() == 4
    assert "· a space" in tab[".side"].inner_text()
    assert all(asked.startswith((url, "data:", "blob:")) for asked in tab.asked)


def test_a_token_shows_the_logged_weights(open_tab: OpenTab) -> None:
    """In both directions, for a head of the last layer, at the last step."""
    tab = open_tab(layer=1, head=1)
    weights = shown_byte(causal_maps(6)[1][0, 1].numpy())
    tab[".token[data-place='12'] >> nth=0"].hover()
    attends, attended = tab.listed("to"), tab.listed("from")
    assert attends == pytest.approx(dict(enumerate(weights[12, :13])), abs=6e-4)
    assert attended == pytest.approx({at: weights[at, 12] for at in attended}, abs=6e-4)
    assert len(attended) > 5
    ends = tab[".panel:not([hidden]) .lines path.to"].evaluate_all(ENDS)
    linked = {place for place, weight in attends.items() if place != 12 and weight > 0.01}
    assert len(ends) == len(linked) and {frozenset(pair) for pair in ends} == {
        frozenset((12, place)) for place in linked
    }


# Of each curve, the tokens on whose upper or lower edge it begins and ends.
ENDS = """(all) => all.map((path) => {
    const { left, top } = path.ownerSVGElement.getBoundingClientRect();
    const tokens = [...path.closest(".sheet").querySelectorAll(".token")];
    return [0, path.getTotalLength()].map((at) => {
        const { x, y } = path.getPointAtLength(at);
        return tokens.findIndex((token) => {
            const box = token.getBoundingClientRect();
            const onEdge = [box.top, box.bottom].some((edge) => Math.abs(edge - top - y) < 1.5);
            return onEdge && Math.abs(box.left + box.width / 2 - left - x) < 1.5;
        });
    });
})"""


@pytest.mark.long
def test_a_token_of_cross_attention_shows_the_logged_weights(logs: Path, open_tab: OpenTab) -> None:
    """Of a query; and of a key, whose places come before those of the queries."""
    target, source = [f"t{i}" for i in range(4)], [f"s{i}" for i in range(6)]
    logits = 2 * torch.randn(2, 1, 3, 4, 6, generator=torch.Generator().manual_seed(0))
    maps = [*logits.softmax(-1)]
    log(logs / "cross", 1, tokens=target, maps=maps, key_tokens=source)
    weights = shown_byte(maps[1][0, 1].numpy())
    tab = open_tab(run="cross", layer=1, head=1)
    tokens = tab[".panel:not([hidden]) .token"].all_text_contents()
    assert tokens == ["s0", "s1", "s2", "s3", "s4", "s5", "t0", "t1", "t2", "t3"]
    heading = tab[".panel:not([hidden]) .lists h4"]
    assert "attends to" in heading.inner_text(), "a query is chosen first"
    tab[".panel:not([hidden]) .token[data-place='2']"].click()
    listed = tab.listed("to")
    expected = {4 + key: weights[2, key] for key in range(6)}  # by the places of the keys
    assert listed == pytest.approx(expected, abs=6e-4)
    assert heading.all_text_contents() == ["t2 attends to"]
    lines = tab[".panel:not([hidden]) .lines .to"].count()
    assert lines == sum(weight > 0.01 for weight in listed.values())
    assert tab[".panel:not([hidden]) .lines .from"].count() == 0
    tab[".panel:not([hidden]) .token[data-place='5']"].click()  # the second key
    assert tab.listed("from") == pytest.approx(dict(enumerate(weights[:, 1])), abs=6e-4)
    assert not tab.listed("to")
    assert heading.all_text_contents() == ["s1 is attended to by"]


def test_a_link_opens_in_a_tab_that_is_open(open_tab: OpenTab) -> None:
    tab = open_tab(layer=0, head=1, token=3, frame=True)
    link = {"run": ODD_RUN, "tag": HOSTILE, "token": 2}
    parts = "".join(f"&p.attention.{key}={quote(str(value))}" for key, value in link.items())
    tab.page.evaluate("hash => { location.hash = hash }", f"#attention{parts}")
    tab.shown([ODD_RUN, HOSTILE, 5])
    focus = tab[".token.focus >> nth=0"]
    sync_api.expect(focus).to_have_attribute("data-place", "2")
    tab[".token[data-place='4'] >> nth=0"].click()
    tab.page.wait_for_url("**token=4**")
    for name in ("scalars", "attention"):  # what was chosen stays meanwhile
        tab.page.locator(f"[data-plugin-id={name}]").click()
        tab.page.wait_for_url(f"**#{name}**")
    tab.page.wait_for_url("**token=4**")
    tab.shown([ODD_RUN, HOSTILE, 5])
    sync_api.expect(focus).to_have_attribute("data-place", "4")


def test_new_steps_of_a_run_are_shown(logs: Path, open_tab: OpenTab) -> None:
    log(logs / "growing", 0)
    tab = open_tab(run="growing", layer=1, head=1, token=2)
    assert tab.shown() == [["growing", "probe", 0]]
    log(logs / "growing", 1)
    tab.page.clock.run_for(REFRESH)
    tab.shown(["growing", "probe", 1])
    weights = shown_byte(causal_maps(1, n=8)[1][0, 1, 2, :3].numpy())
    assert tab.listed("to") == pytest.approx(dict(enumerate(weights)), abs=6e-4)
    tab[".picker select >> nth=0"].select_option("trained")
    tab.shown(["trained", "attention", 6])  # from the last step to the last step


@pytest.mark.long
def test_a_long_map_is_cut_and_zooms(open_tab: OpenTab) -> None:
    tab = open_tab(run=ODD_RUN, tag="long", token=256)
    sync_api.expect(tab["canvas.picture >> nth=0"]).to_have_class("picture zoomed")
    tab["[aria-label^='Whole map']"].click()
    tab.page.wait_for_url("**zoom=1%2C0%2C0**")
    tab.page.reload()
    tab.shown()
    sync_api.expect(tab["[aria-label^='Whole map']"]).to_be_disabled()
    assert "first 512 of 600 tokens" in tab[".panel .note >> nth=0"].inner_text()
    picture, readout = tab["canvas.picture >> nth=0"], tab[".readout >> nth=0"]
    box = picture.bounding_box()
    assert box
    corner: Any = {"x": box["width"] - 8, "y": box["height"] - 8}
    picture.hover(position=corner)
    assert re.fullmatch(r"(51[01]) word → \1 word: 1.000", readout.inner_text())
    for _ in range(6):
        tab["[aria-label^='Zoom in']"].click()
    picture.hover(position=corner)
    seen = re.match(r"(\d+) word → (\d+) word", readout.inner_text())
    assert seen and seen[1] == seen[2] and 250 < int(seen[1]) < 300, "the middle fills the map"
    mouse = tab.page.mouse
    mouse.move(box["x"] + 300, box["y"] + 300)
    mouse.down()
    mouse.move(box["x"] + 200, box["y"] + 200, steps=3)
    mouse.up()
    picture.hover(position=corner)
    panned = re.match(r"(\d+) word → (\d+) word", readout.inner_text())
    assert panned and panned[1] == panned[2] and int(panned[1]) > int(seen[1]), "dragged along"
    tab[".token[data-place='500'] >> nth=0"].click()  # out of sight on the map
    picture.hover(position={"x": box["width"] - 8, "y": box["height"] / 2})
    centred = re.match(r"(\d+) word →", readout.inner_text())
    assert centred and abs(int(centred[1]) - 500) < 22  # of 45 that are seen


def test_a_token_stays_under_the_pointer(open_tab: OpenTab) -> None:
    token = open_tab(run=ODD_RUN, tag="long", token=0)[".token[data-place='500'] >> nth=0"]
    token.evaluate("each => each.scrollIntoView({ block: 'end' })")  # at the edge of the text
    before = token.bounding_box()
    token.hover()
    sync_api.expect(token).to_have_class("token focus")
    assert token.bounding_box() == before


def test_two_runs_are_compared_and_a_link_restores_that(open_tab: OpenTab, opened: OpenTab) -> None:
    tab = open_tab(layer=0, head=1, token=1)
    tab[".sorting select"].select_option("mean distance")
    tab["button:has-text('Compare')"].click()
    tab[".picker >> nth=1"].locator("select").first.select_option(ODD_RUN)
    tab[".picker >> nth=1"].locator("select").nth(1).select_option(HOSTILE)
    views = [["trained", "attention", 6], [ODD_RUN, HOSTILE, 5]]  # the last step
    tab.shown(*views)
    assert tab[".panel:not([hidden])"].count() == 2
    tab[".chart polyline.view1 >> nth=3"].wait_for(state="attached")  # the curves of both
    tab["button:has-text('Copy link')"].click()
    tab[".copied:not(:empty)"].wait_for()
    again = opened(tab.page.url)
    assert again.shown() == views
    assert again[".panel h2 >> nth=0"].inner_text().startswith("L0H1")
    assert again[".token.focus >> nth=0"].get_attribute("data-place") == "1"
    assert again[".sorting select"].input_value() == "mean distance"


@pytest.mark.long
def test_lightness_alone_shows_the_weight(open_tab: OpenTab) -> None:
    """Maps are readable without colour vision. No weight has the colour of the future."""
    code = """(_, dark) => import(new URL("colours.js", document.baseURI)).then(
        ({ scale, future }) => [...scale(dark), future(dark)])"""
    main = open_tab()["main"]
    for dark in (False, True):
        pixels = np.array(main.evaluate(code, dark), dtype="<u4")
        channels = pixels.view(np.uint8).reshape(-1, 4)[:, :3] / 255
        linear = np.where(channels > 0.04045, ((channels + 0.055) / 1.055) ** 2.4, channels / 12.92)
        lightness = np.cbrt(linear @ [0.2126, 0.7152, 0.0722])
        steps = np.diff(lightness[:256]) * (1 if dark else -1)
        assert (steps > -0.002).all() and steps.sum() > 0.6
        assert pixels[256] not in pixels[:256]


def test_a_hostile_token_is_text(open_tab: OpenTab) -> None:
    tab = open_tab(run=ODD_RUN, tag=HOSTILE, token=1)
    assert HOSTILE[:20].replace(" ", "·") in tab[".text >> nth=0"].inner_text()
    assert tab["main img"].count() == tab["main script"].count() == 0
    assert tab.page.title() == "Attention"
    assert sorted(tab.listed("to")) == list(range(6)), "a map that is not causal"


@pytest.mark.long
def test_a_link_to_missing_views_shows_the_nearest(open_tab: OpenTab) -> None:
    tab = open_tab(run="gone", step=4, layer=9, head=9, token=99, sort="luck")
    assert tab.shown() == [["trained", "attention", 3]]
    assert tab[".panel h2 >> nth=0"].inner_text() == "L1H1"
    notice = tab["p.notice"]
    sync_api.expect(notice).to_have_text("gone is not in this log; this is trained.")
    link = "#attention&p.attention.run=trained&p.attention.tag=lost"
    tab.page.evaluate("hash => { location.hash = hash }", link)
    sync_api.expect(notice).to_have_text("lost is not in this log; this is attention.")


def test_a_saved_map_has_the_logged_weights(logs: Path, open_tab: OpenTab) -> None:
    """As colours of the picture: the palette's, for each cell, and the future's; and as numbers."""
    log(logs / "numbers", 0, tokens=list("abcdefgh"))
    tab = open_tab(run="numbers", layer=1, head=0, token=-1)
    weights = shown_byte(causal_maps(0, n=8)[1][0, 0].numpy())
    lines = tab.table()
    cells = {(int(line["query"]), int(line["key"])): float(line["weight"]) for line in lines}
    assert cells == {
        (query, key): pytest.approx(weights[query, key], abs=1e-5)
        for query in range(8)
        for key in range(query + 1)
    }
    code = """() => import(new URL("colours.js", document.baseURI)).then(
        ({ scale, future, css }) => [...scale(false), future(false)].map(css))"""
    palette = tab["main"].evaluate(code)
    colours = [tuple(map(int, re.findall(r"\d+", colour))) for colour in palette]
    picture = Image.open(io.BytesIO(tab.saved("PNG"))).convert("RGB")
    margin = 16  # of labels with one letter
    unit = (picture.width - margin - 7) / 8
    for query, key in np.ndindex(8, 8):
        at = [round(margin + (place + 0.5) * unit) for place in (key, query)]
        byte = 256 if key > query else round(np.sqrt(weights[query, key]) * 255)
        assert picture.getpixel((at[0], at[1])) == colours[byte]


def test_hostile_names_and_tokens_are_saved(open_page: OpenTab) -> None:
    tokens = [HOSTILE, "\x00\x1b", '"', "\ud800", "=1+1", "c,d", "line\n"]
    tab = open_page([("probe", 0, encode(causal_maps(0, 1, 1, 7), tokens))])
    lines = tab.table()
    assert [json.loads(line["key_token"]) for line in lines[-7:]] == tokens
    assert all(url.startswith("blob:") for url in tab.asked[1:])
