"""The address that follows the view, and playing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention, encode
from tensorboard_attention.tests.conftest import Tab, causal_maps, log

pytestmark = pytest.mark.long


def test_the_view_survives_a_reload(logs: Path, open_tab: Callable[..., Tab]) -> None:
    """Also the zoom; and the address of a view of the last step leads to the last step."""
    log(logs / "reloaded", 0, 5, n=30)
    tab = open_tab(run="reloaded")
    tab[".head >> nth=2"].click()
    tab[".token[data-place='3'] >> nth=0"].click()
    tab[".sorting select"].select_option("entropy")
    tab["button:has-text('Compare')"].click()
    for _ in range(3):
        tab.page.keyboard.press("+")
    title = tab[".panel:not([hidden]) h2 >> nth=0"].inner_text()
    picture = tab["canvas.picture:visible >> nth=0"]
    corner: Any = {"x": 110, "y": 110}
    picture.hover(position=corner)
    cell = tab[".panel:not([hidden]) .readout >> nth=0"].inner_text()
    assert re.match(r"\d+ t", cell)
    tab.page.wait_for_url(re.compile("zoom=3.375"))
    tab.page.reload()
    tab.shown(["reloaded", "probe", 5], ["reloaded", "probe", 0])
    assert tab[".panel:not([hidden]) h2 >> nth=0"].inner_text() == title
    assert tab[".sorting select"].input_value() == "entropy"
    assert tab[".token.focus >> nth=0"].get_attribute("data-place") == "3"
    picture.hover(position=corner)
    assert tab[".panel:not([hidden]) .readout >> nth=0"].inner_text() == cell
    # The last step stays the last step.
    writer = SummaryWriter(str(logs / "reloaded"), filename_suffix=".later")
    add_attention(writer, "probe", causal_maps(9, n=30), [f"t{i}" for i in range(30)], 9)
    writer.close()
    tab.page.reload()
    tab.shown(["reloaded", "probe", 9], ["reloaded", "probe", 0])


def test_the_chosen_cell_survives_a_reload(logs: Path, open_tab: Callable[..., Tab]) -> None:
    log(logs / "celled", 0, n=30)
    tab = open_tab(run="celled")
    picture = tab["canvas.picture:visible >> nth=0"]
    readout = tab[".panel:not([hidden]) .readout >> nth=0"]
    picture.click(position={"x": 110, "y": 200})
    tab["h2 >> nth=0"].hover()  # the pointer leaves the map
    cell = readout.inner_text()
    assert re.match(r"\d+ t\d+ → \d+ t", cell)
    tab.page.wait_for_url(re.compile("key="))
    tab.page.reload()
    tab.shown(["celled", "probe", 0])
    sync_api.expect(readout).to_have_text(cell)
    # A key that the text does not have is no key.
    tab = open_tab(run="celled", token=5, key=400)
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_be_visible()
    assert "400" not in tab[".panel:not([hidden]) .readout >> nth=0"].inner_text()


def test_a_change_just_before_a_reload_is_kept(open_tab: Callable[..., Tab]) -> None:
    tab = open_tab(run="trained")
    tab.page.wait_for_timeout(1000)  # the addresses of the start are written
    tab[".head >> nth=3"].click()
    title = tab[".panel:not([hidden]) h2 >> nth=0"]
    sync_api.expect(title).to_have_text("L1H1")
    tab.page.reload()
    sync_api.expect(title).to_have_text("L1H1")


@pytest.mark.parametrize(
    "zoom", ["1e999,0,0", "2", "a,b,c", "NaN,0,0", "2,-5,9e9", "1e300,0.5,0.5"]
)
def test_an_odd_zoom_in_a_link(open_tab: Callable[..., Tab], zoom: str) -> None:
    tab = open_tab(run="trained", zoom=zoom)
    assert tab.shown() == [["trained", "attention", 6]]
    picture = tab["canvas.picture >> nth=0"]
    picture.hover(position={"x": 100, "y": 100})
    assert re.match(r"\d+ ·w\d+ → ", tab[".readout >> nth=0"].inner_text())


def test_another_tab_of_tensorboard_keeps_its_address(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    tab = open_tab(run="trained")
    tab.page.wait_for_url(re.compile("step=last"))
    bar = tab.page.locator("tb-webapp header, app-header")
    bar.get_by_text("Time Series").first.click()
    tab.page.locator("iframe[src*=attention]").wait_for(state="hidden")
    tab.page.clock.run_for(2_000)
    assert "attention" not in tab.page.url.split("#")[1].split("&")[0]
    bar.get_by_text("Attention").first.click()
    tab.page.locator("iframe[src*=attention]").wait_for(state="visible")
    tab.page.wait_for_url(re.compile("step=last"))


@pytest.mark.parametrize(("count", "seconds"), [(120, 2), (30, 5), (3, 20)])
def test_playing_takes_the_chosen_time(
    open_page: Callable[..., Tab], count: int, seconds: int
) -> None:
    """By the page's own clock; short runs take at most a second for each step."""
    entries = [
        ("probe", step, encode(causal_maps(step, 1, 1, 4), list("abcd"))) for step in range(count)
    ]
    tab = open_page(entries)
    tab["select.speed >> nth=0"].select_option(str(seconds))
    code = """([count]) => new Promise((resolve) => {
        const began = performance.now();
        new MutationObserver(() => {
            const [[, , step]] = JSON.parse(document.querySelector("main").dataset.shown);
            if (step === count - 1) resolve(performance.now() - began);
        }).observe(document.querySelector("main"), { attributeFilter: ["data-shown"] });
        document.querySelector("button.play").click();
    })"""
    tab["input[type=range] >> nth=0"].fill("0")
    tab.shown([".", "probe", 0])
    took = tab["main"].evaluate(f"(_, [count]) => ({code})([count])", [count])
    expected = min(seconds, count - 1) * 1000
    assert 0.7 * expected < took < 1.6 * expected + 1500
    sync_api.expect(tab["button.play >> nth=0"]).to_have_text("▶")
