"""The tab without a mouse or a screen, and on phones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright import sync_api

from tensorboard_attention.tests.conftest import OpenTab

pytestmark = pytest.mark.long


def test_tokens_are_reached_and_read_without_a_mouse(logs: Path, open_tab: OpenTab) -> None:
    tab = open_tab(run="trained", token=5, layer=1, head=1)
    text = tab.root.get_by_role("listbox", name="Tokens of the text")
    assert text.get_by_role("option").count() == 24
    assert text.locator("[tabindex='0']").count() == 1
    chosen = text.get_by_role("option", selected=True)
    assert chosen.get_attribute("aria-label") == "5: w5"
    chosen.focus()
    keyboard = tab.page.keyboard
    for key, place in [("ArrowRight", 6), ("Home", 0), ("End", 23), ("ArrowLeft", 22)]:
        keyboard.press(key)
        sync_api.expect(text.locator(f"[data-place='{place}']")).to_be_focused()
        sync_api.expect(chosen).to_have_attribute("data-place", f"{place}")
    keyboard.press("Enter")
    keyboard.press(",")  # at another step, it is still chosen and focused
    tab.shown(["trained", "attention", 3])
    sync_api.expect(text.locator("[data-place='22']")).to_be_focused()
    curve = tab.root.get_by_role("img", name=re.compile("^entropy over steps, from .* at step 3$"))
    sync_api.expect(curve).to_have_count(1)


SMALL = """() => [...document.querySelectorAll("main *")].filter((each) =>
    [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) &&
    parseFloat(getComputedStyle(each).fontSize) < 12).map((each) => each.outerHTML)"""


@pytest.mark.parametrize("width", [1280, 400])
def test_no_text_is_smaller_than_12_pixels(open_tab: OpenTab, width: int) -> None:
    tab = open_tab(
        run="trained", run2="trained", step2=0, difference=1, sort="entropy", width=width
    )
    tab[".chart polyline >> nth=3"].wait_for(state="attached")
    tab[".keys summary"].click()
    assert tab["main"].evaluate(SMALL) == []
    assert tab["main"].evaluate("() => document.scrollingElement.scrollWidth <= innerWidth")


def test_a_phone_shows_the_tab_alone(open_tab: OpenTab) -> None:
    """At the address that train.py prints."""
    tab = open_tab(width=400, height=800)
    page = tab.page
    assert page.evaluate("() => [innerWidth, document.scrollingElement.scrollWidth]") == [400, 400]
    assert page.title() == "Attention"
    tab[".head >> nth=1"].tap()
    tab[".token[data-place='4'] >> nth=0"].tap()
    page.wait_for_url(re.compile("head=1.*token=4"))
    page.reload()
    tab.shown()
    sync_api.expect(tab[".panel:not([hidden]) h2 >> nth=0"]).to_have_text("L0H1")
    sync_api.expect(tab[".panel:not([hidden]) .lists .to li[data-place]"]).to_have_count(5)
