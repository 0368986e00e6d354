"""Labels of odd tokens; the tab without a mouse, a screen or colours; phones."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from tensorboard_attention.tests.conftest import Tab, causal_maps, shown_byte

pytestmark = pytest.mark.long

EMOJI = [
    "👩🏽\u200d🚀",
    "🇫🇷",
    "👨\u200d👩\u200d👧\u200d👦",
    "🏴\U000e0067\U000e0062\U000e007f",
    "1\ufe0f\u20e3",
]


def test_labels_count_as_they_are_drawn(open_tab: Callable[..., Tab]) -> None:
    code = """(_, texts) => import(new URL("dom.js", document.baseURI)).then(
        ({ tokenLabel }) => texts.map((text) => tokenLabel(text, 12)))"""
    texts = {
        "\u200d" * 20: r"\u{200d}…",
        "\u200b": r"\u{200b}",
        r"a\xff\xfe\xfd": r"a\xff\xfe…",
        **{each: each for each in EMOJI},
        EMOJI[0] * 6: EMOJI[0] * 6,
        EMOJI[0] * 7: EMOJI[0] * 5 + "…",
        "👩\u200d": r"👩\u{200d}",  # the beginning of a sequence
        "🇫": "🇫",
        "incomprehensible": "incomprehen…",
        "e\u0301" * 3: "e\u0301" * 3,
        "\u2764\ufe0f": "\u2764\ufe0f",
    }
    assert open_tab()["main"].evaluate(code, [*texts]) == [*texts.values()]


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
    table = tab.root.get_by_role("table")
    sync_api.expect(table.locator("caption")).to_have_text(
        "Layer 1, head 1: weights of token 22, w22"
    )
    weights = shown_byte(causal_maps(3)[1][0, 1].numpy())
    rows = table.locator("tbody tr")
    assert rows.count() == 24
    for place in (0, 7, 22):
        cells = rows.nth(place).locator("td").all_inner_texts()
        assert cells[:2] == [f"{place}", f"w{place}"]
        assert float(cells[2]) == pytest.approx(weights[22, place], abs=6e-4)
    later = rows.nth(23).locator("td").all_inner_texts()
    assert later[2] == "\u2013" and float(later[3]) == pytest.approx(weights[23, 22], abs=6e-4)
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_forced_colours_show_what_is_chosen(
    site: dict[str, str], browser: sync_api.Browser, scheme: Any
) -> None:
    context = browser.new_context(forced_colors="active", color_scheme=scheme)
    view = context.new_page()
    view.goto(f"{site['url']}data/plugin_entry.html?name=attention#&p.attention.run=trained")
    view.locator("main[data-shown]").wait_for()
    outline = "all => all.map((each) => getComputedStyle(each).outlineStyle)"
    assert view.locator(".head").evaluate_all(outline).count("solid") == 1
    assert view.locator(".token").evaluate_all(outline).count("solid") == 1
    # The labels on the map are drawn in the colour of text, and the legend keeps its colours.
    read = """(canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, 60, canvas.height);
        const seen = new Set();
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) seen.add(data[i]);
        return [...seen];
    }"""
    ink = view.locator("canvas.picture >> nth=0").evaluate(read)
    assert (255 if scheme == "dark" else 0) in ink
    ramp = view.locator(".ramp:visible >> nth=0").evaluate(
        "(each) => getComputedStyle(each).backgroundImage"
    )
    assert ramp.startswith("linear-gradient")
    context.close()


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
