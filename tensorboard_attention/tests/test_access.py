"""The tab without a mouse or a screen, and on phones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright import sync_api

from tensorboard_attention.tests.conftest import OpenTab


@pytest.mark.long
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


def test_keys(open_tab: OpenTab) -> None:
    tab = open_tab(layer=0, head=0, token=2)
    title = tab[".panel h2 >> nth=0"]
    tab[".head >> nth=0"].click()
    for key, heading in [
        ("ArrowRight", "L0H1"),
        ("ArrowDown", "L1H1"),
        ("ArrowLeft", "L1H0"),
        ("ArrowUp", "L0H0"),
    ]:
        tab.page.keyboard.press(key)
        sync_api.expect(title).to_have_text(heading)
    tab.page.keyboard.press("]")
    sync_api.expect(tab[".token.focus >> nth=0"]).to_have_attribute("data-place", "3")
    tab.page.keyboard.press("Shift+ArrowLeft")
    tab.shown(["trained", "attention", 3])
    tab.page.keyboard.press("[")
    sync_api.expect(tab[".token.focus >> nth=0"]).to_have_attribute("data-place", "2")
    tab.page.keyboard.press(",")
    tab.shown(["trained", "attention", 0])
    tab.page.keyboard.press(".")
    tab.shown(["trained", "attention", 3])
    picture = tab["canvas.picture >> nth=0"]
    for key, zoomed in [("+", True), ("-", False), ("+", True), ("0", False)]:
        tab.page.keyboard.press(key)
        sync_api.expect(picture).to_have_class("picture zoomed" if zoomed else "picture")
    tab.page.keyboard.press("c")
    tab.shown(["trained", "attention", 3], ["trained", "attention", 0])
    tab.page.keyboard.press("c")
    tab.shown(["trained", "attention", 3])
    last = open_tab(layer=0, head=0, token=23, zoom="4,0.7,0.7")
    for key in ("]", "ArrowRight"):
        last.page.keyboard.press(key)
    last.page.wait_for_url("**head=1**")
    assert "token=23&p.attention.zoom=4%2C0.7%2C0.7" in last.page.url


def test_space_plays_where_it_has_nothing_to_press(open_tab: OpenTab) -> None:
    """Also from the head and from the token that were clicked; keys work beside a checkbox."""
    for part, title in ((".head >> nth=1", "L0H1"), (".token >> nth=4", "L0H0")):
        tab = open_tab(run="trained", step=0, layer=0, head=0, token=1)
        tab[part].click()
        sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text(title)
        tab.page.keyboard.press(" ")
        tab.shown(["trained", "attention", 6])
    tab[".head >> nth=3"].focus()  # which is not chosen
    tab.page.keyboard.press(" ")
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L1H1")
    tab.page.keyboard.press("c")
    tab.shown(["trained", "attention", 6], ["trained", "attention", 0])
    tab["input[type=checkbox]"].click()
    tab.page.keyboard.press("ArrowLeft")
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_contain_text("L1H0")


SMALL = """() => [...document.querySelectorAll("main *")].filter((each) =>
    [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) &&
    parseFloat(getComputedStyle(each).fontSize) < 12).map((each) => each.outerHTML)"""


@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 400])
def test_no_text_is_smaller_than_12_pixels(open_tab: OpenTab, width: int) -> None:
    tab = open_tab(
        run="trained", run2="trained", step2=0, difference=1, sort="entropy", width=width
    )
    tab[".chart polyline >> nth=3"].wait_for(state="attached")
    tab[".keys summary"].click()
    assert tab["main"].evaluate(SMALL) == []
    assert tab["main"].evaluate("() => document.scrollingElement.scrollWidth <= innerWidth")


@pytest.mark.long
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
