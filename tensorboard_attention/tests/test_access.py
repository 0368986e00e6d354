"""The tab without a mouse or a screen, and on phones."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright import sync_api

from tensorboard_attention.tests.conftest import Tab

pytestmark = pytest.mark.long


def test_tokens_are_reached_and_read_without_a_mouse(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
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
def test_no_text_is_smaller_than_12_pixels(open_tab: Callable[..., Tab], width: int) -> None:
    tab = open_tab(
        run="trained", run2="trained", step2=0, difference=1, sort="entropy", width=width
    )
    tab[".chart polyline >> nth=3"].wait_for(state="attached")
    tab[".keys summary"].click()
    assert tab["main"].evaluate(SMALL) == []
    assert tab["main"].evaluate("() => document.scrollingElement.scrollWidth <= innerWidth")


def test_a_phone_shows_the_tab_alone(site: dict[str, str], browser: sync_api.Browser) -> None:
    """At the address that train.py prints."""
    context = browser.new_context(
        viewport={"width": 400, "height": 800}, is_mobile=True, has_touch=True
    )
    view = context.new_page()
    errors: list[str] = []
    view.on("pageerror", lambda error: errors.append(str(error)))
    view.goto(f"{site['url']}data/plugin_entry.html?name=attention")
    view.locator("main[data-shown]").wait_for()
    assert view.evaluate("() => [innerWidth, document.scrollingElement.scrollWidth]") == [400, 400]
    assert view.title() == "Attention"
    view.locator(".head >> nth=1").tap()
    view.locator(".token[data-place='4'] >> nth=0").tap()
    view.wait_for_url(re.compile("head=1.*token=4"))
    view.reload()
    view.locator("main[data-shown]").wait_for()
    sync_api.expect(view.locator(".panel:not([hidden]) h2 >> nth=0")).to_have_text("L0H1")
    sync_api.expect(view.locator(".panel:not([hidden]) .lists .to li[data-place]")).to_have_count(5)
    context.close()
    assert errors == []
