"""Comparing in the Attention tab: differences, steps that move together, the order of heads."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright import sync_api

from tensorboard_attention.tests.conftest import Tab, causal_maps, in_view, log, shown_byte

pytestmark = pytest.mark.long

MINUS = "\u2212"


def test_the_difference_of_two_views(logs: Path, open_tab: Callable[..., Tab]) -> None:
    """Its cells, signs and numbers are those of the logged weights, first minus second."""
    log(logs / "differ", 0, 1)
    tab = open_tab(run="differ", step=1, run2="differ", step2=0, layer=1, head=1)
    assert tab[".panel.difference"].is_hidden()
    tab["button:has-text('Difference')"].click()
    panel = tab[".panel.difference"]
    sync_api.expect(panel.locator("h2")).to_have_text("L1H1 · step 1 minus step 0")
    one, two = (shown_byte(causal_maps(step, n=8)[1][0, 1].numpy()) for step in (1, 0))
    lines = [*csv.DictReader(io.StringIO(tab.saved("CSV", ".panel.difference").decode()))]
    assert len(lines) == 36
    for line in lines:
        at = int(line["query"]), int(line["key"])
        assert float(line["difference"]) == pytest.approx(one[at] - two[at], abs=1e-5)
    # The readout of a cell.
    canvas = panel.locator("canvas")
    box = canvas.bounding_box()
    assert box
    canvas.hover(position={"x": box["width"] - 10, "y": box["height"] - 10})
    one_is, two_is, difference = one[7, 7], two[7, 7], one[7, 7] - two[7, 7]
    sign = MINUS if difference < 0 else "+"
    sync_api.expect(panel.locator(".readout")).to_have_text(
        f"7 t7 → 7 t7: {one_is:.3f} {MINUS} {two_is:.3f} = {sign}{abs(difference):.3f}"
    )
    ticks = panel.locator(".ticks span").all_inner_texts()
    assert ticks == [f"{MINUS}1", f"{MINUS}.25", f"{MINUS}.05", "0", "+.05", "+.25", "+1"]
    assert "more in step 0" in panel.locator(".more").inner_text()
    tab.page.keyboard.press("d")
    sync_api.expect(panel).to_be_hidden()


def test_texts_that_differ_have_no_difference(logs: Path, open_tab: Callable[..., Tab]) -> None:
    log(logs / "first text", 0)
    log(logs / "second text", 0, tokens=list("abcdefgh"))
    tab = open_tab(run="first text", run2="second text", difference=1)
    panel = tab[".panel.difference"]
    sync_api.expect(panel.locator(".note")).to_have_text(
        "Only maps of the same text have a difference."
    )
    assert panel.locator("canvas").is_hidden()
    for map_of_one in (".panel >> nth=0", ".panel >> nth=1"):
        assert in_view(tab[map_of_one].locator("canvas"))
    assert panel.locator(".save").is_hidden() and tab[".save >> nth=0"].is_visible()


def test_a_head_that_one_model_lacks_has_no_difference(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    log(logs / "three heads", 0, heads=3)
    log(logs / "two heads", 0)
    tab = open_tab(run="three heads", run2="two heads", difference=1, twins=0, layer=0, head=2)
    sync_api.expect(tab[".panel.difference .note"]).to_have_text(
        "The other model does not have this head."
    )
    assert in_view(tab[".panel >> nth=0"].locator("canvas"))
    rest = [each.is_enabled() for each in tab[".save >> nth=1"].locator("button").all()]
    assert rest == [False, False, False, True]
    tab[".head >> nth=1"].click()
    sync_api.expect(tab[".panel.difference canvas"]).to_be_visible()
    for each in tab[".save button"].all():
        sync_api.expect(each).to_be_enabled()


# Linear RGB as it is seen (Machado, Oliveira and Fernandes 2009), row by row; to LMS and OKLab
# (Ottosson 2020).
VISION = {
    "all": "1 0 0  0 1 0  0 0 1",
    "protan": "0.1523 1.0526 -0.2049  0.1145 0.7863 0.0992  -0.0039 -0.0481 1.0520",
    "deutan": "0.3673 0.8606 -0.2280  0.2801 0.6725 0.0474  -0.0118 0.0429 0.9689",
    "tritan": "1.2555 -0.0767 -0.1788  -0.0784 0.9308 0.1476  0.0047 0.6914 0.3039",
}
TO_LMS = "0.412221 0.536333 0.051446  0.211903 0.680700 0.107397  0.088302 0.281719 0.629979"
TO_LAB = "0.210454 0.793618 -0.004072  1.977998 -2.428592 0.450594  0.025904 0.782772 -0.808676"


def matrix(text: str) -> np.ndarray:
    """Transposed, for colours in rows."""
    return np.array(text.split(), dtype=float).reshape(3, 3).T


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("dark", [False, True])
def test_signs_are_told_apart_in_any_vision(
    open_tab: Callable[..., Tab], vision: str, dark: bool
) -> None:
    code = """(_, dark) => import(new URL("colours.js", document.baseURI)).then(
        ({ diverging, scale, future }) => [...diverging(dark), scale(dark)[0], future(dark)])"""
    pixels = np.array(open_tab()["main"].evaluate(code, dark), dtype="<u4")
    channels = pixels.view(np.uint8).reshape(-1, 4)[:, :3] / 255
    linear = np.where(channels > 0.04045, ((channels + 0.055) / 1.055) ** 2.4, channels / 12.92)
    seen = (linear @ matrix(VISION[vision])).clip(0)
    lab = np.cbrt(seen @ matrix(TO_LMS)) @ matrix(TO_LAB)
    assert pixels[255] == pixels[511], "zero is the background"
    assert pixels[512] not in pixels[:511]
    sides = lab[254::-1], lab[256:511]
    for side in sides:
        steps = np.diff(side[:, 0]) * (1 if dark else -1)
        assert (steps > -0.004).all() and steps.sum() > 0.5
    apart = np.linalg.norm(sides[0] - sides[1], axis=1)
    assert (apart[50:] > 0.07).all(), "from a difference of 0.04 on"


def test_both_views_move_together(logs: Path, open_tab: Callable[..., Tab]) -> None:
    log(logs / "many", *range(0, 50, 10))
    tab = open_tab(run="many", step=20, run2="many", step2=10)
    views = lambda one, two: tab.shown(["many", "probe", one], ["many", "probe", two])  # noqa: E731
    slider, other = tab["input[type=range] >> nth=0"], tab["input[type=range] >> nth=1"]
    slider.fill("3")
    views(30, 10)
    tab["label:has-text('Move both')"].click()
    slider.fill("4")
    views(40, 20)
    slider.fill("0")  # 20 before the first step there is none
    views(0, 0)
    slider.fill("3")
    views(30, 10)
    other.fill("2")
    views(40, 20)
    tab.page.wait_for_url(re.compile("step=last.*step2=20&.*together=1"))
    tab.page.reload()
    views(40, 20)
    assert tab["label:has-text('Move both') input"].is_checked()
    tab["label:has-text('Move both')"].click()
    other.fill("0")
    views(40, 0)


def test_arrow_keys_follow_the_order_that_is_seen(logs: Path, open_tab: Callable[..., Tab]) -> None:
    log(logs / "wide", 0, heads=14)
    tab = open_tab(run="wide", sort="entropy")
    places = {
        each["name"]: (each["x"], each["y"])
        for each in tab[".head"].evaluate_all(
            """all => all.map(each => ({
                name: each.getAttribute("aria-label").split(",").slice(0, 2).join(),
                x: each.parentElement.offsetLeft,
                y: each.parentElement.offsetTop,
            }))"""
        )
    }
    rows = sorted({y for _, y in places.values()})
    assert len(rows) > 2
    start = next(name for name, (x, y) in places.items() if y == rows[0])
    chosen = tab[".head[aria-pressed=true]"]

    def now() -> tuple[int, int]:
        name = chosen.get_attribute("aria-label") or ""
        return places[",".join(name.split(",")[:2])]

    tab[f".head[aria-label^='{start},']"].click()
    for key, row in [("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1)]:
        tab.page.keyboard.press(key)
        sync_api.expect(chosen).to_be_focused()
        assert now() == (places[start][0], rows[row])
    tab.page.keyboard.press("ArrowRight")
    sync_api.expect(chosen).to_be_focused()
    assert now()[0] > places[start][0] and now()[1] == rows[1]
