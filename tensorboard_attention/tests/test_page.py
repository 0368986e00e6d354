"""A page, also in the frame of a notebook's cell: what it shows, and its size."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from playwright import sync_api

from tensorboard_attention import encode, page, show
from tensorboard_attention.tests.conftest import HOSTILE, OpenTab, Watched, causal_maps

TOKENS = [f" w{i}" for i in range(24)]
ENTRIES = [("probe", step, encode(causal_maps(step), TOKENS)) for step in (0, 5, 10)]
# Notes what is shown from now on.
SEEN = """main => {
    window.seen = [];
    new MutationObserver(() => seen.push(main.dataset.shown)).observe(main,
        { attributeFilter: ["data-shown"] });
}"""


def test_a_page_has_a_heading(open_page: OpenTab) -> None:
    tab = open_page(ENTRIES, title=HOSTILE, about=f"A {HOSTILE} model.", run="my run")
    assert tab["h1"].inner_text() == tab.page.title() == HOSTILE
    assert tab[".about p"].inner_text() == f"A {HOSTILE} model."
    assert tab.shown() == [["my run", "probe", 10]]
    assert tab["img"].count() == 0 and len(tab.asked) == 1, "the page itself"


def test_a_page_with_several_steps_plays(open_page: OpenTab) -> None:
    tab = open_page(ENTRIES, run="my run")
    role = tab.page.get_by_role
    for button in ("Play through training", "Compare"):
        assert role("button", name=button).is_enabled()
    assert role("slider", name="Step").is_enabled()
    assert not role("combobox", name=re.compile("Run|Probe"), disabled=False).count()
    assert not role("button", name="Copy link").count()
    tab["main"].evaluate(SEEN)
    tab.page.keyboard.press(" ")
    tab[".play >> nth=0"].and_(tab["[aria-label=Pause]"]).wait_for()
    for _ in range(3):
        tab.page.clock.run_for(10_000)
    tab[".play >> nth=0"].and_(tab["[aria-label^=Play]"]).wait_for()
    seen = tab["main"].evaluate("() => seen")
    assert [json.loads(each)[0][2] for each in seen] == [0, 5, 10]


def test_space_scrolls_a_page_of_one_step(open_page: OpenTab) -> None:
    tab = open_page(ENTRIES[:1])
    tab.page.set_viewport_size({"width": 1280, "height": 300})
    tab.page.keyboard.press(" ")
    tab.page.wait_for_function("() => scrollY > 0")


def test_a_page_takes_little_more_than_its_maps(tmp_path: Path) -> None:
    """Nine steps of two layers of four heads and 64 tokens, as the default run logs them."""
    tokens = [f" w{i}" for i in range(64)]
    entries = [("probe", step, encode(causal_maps(step, 2, 4, 64), tokens)) for step in range(9)]
    page(tmp_path / "heads.html", entries)
    maps = sum(4 * math.ceil(len(maps) / 3) for *_, (_, maps) in entries)
    assert (tmp_path / "heads.html").stat().st_size - maps < 88_500


def test_headers_come_back(open_page: OpenTab) -> None:
    """With all of their fields, whatever these are called."""
    more = {"note": "N" * 500, "__proto__": 3}
    entries = []
    for i in range(2):
        header, maps = encode(causal_maps(i, 1, 1, 4), list("abcd"))
        header = json.dumps({**json.loads(header), **(more if i else {})}).encode()
        entries.append(("probe", i, [header, maps]))
    tab = open_page(entries)
    note = tab[".panel:not([hidden]) .note"]
    assert note.inner_text() == "N" * 500
    tab["input[type=range] >> nth=0"].fill("0")
    tab.shown([".", "probe", 0])
    assert note.inner_text() == ""


@pytest.mark.parametrize("width", [900, 400])
def test_a_frame_is_as_high_as_what_it_shows(
    tmp_path: Path, browser: sync_api.Browser, width: int
) -> None:
    """Without a request, in a page like the output of a cell."""
    viewer = show(causal_maps(0, 2, 4, 16), "abcdefghijklmnop", title="Heads & <more>")
    cell = tmp_path / "cell.html"
    cell.write_text(f"<!doctype html><body>{viewer._repr_html_()}</body>")
    tab = Watched(browser.new_context(viewport={"width": width, "height": 600}))
    tab.page.goto(cell.as_uri())
    frame = tab.page.frame_locator("iframe")
    frame.locator("main[data-shown]").wait_for()
    assert frame.locator("h1").inner_text() == "Heads & <more>"
    assert frame.locator(".grid .head").count() == 8
    frame.locator(".grid .head >> nth=5").click()
    sync_api.expect(frame.locator(".panel h2 >> nth=0")).to_have_text("L1H1")
    tab.page.wait_for_timeout(300)  # the frame follows at the next layout
    sizes = frame.locator("html").evaluate("(html) => [html.scrollHeight, innerHeight]")
    assert 0 <= sizes[1] - sizes[0] <= 4
    assert not tab.errors and not [url for url in tab.asked if url.startswith("http")]
    tab.page.context.close()
