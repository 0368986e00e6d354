"""A page: its heading, what it opens on, and its size."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

from tensorboard_attention import encode, page
from tensorboard_attention.tests.conftest import HOSTILE, OpenTab, Tab, causal_maps

TOKENS = [f" w{i}" for i in range(24)]
ENTRIES = [("probe", step, encode(causal_maps(step), TOKENS)) for step in (0, 5, 10)]
Open = Callable[..., Tab]
# Notes what is shown from now on.
SEEN = """main => {
    window.seen = [];
    new MutationObserver(() => seen.push(main.dataset.shown)).observe(main,
        { attributeFilter: ["data-shown"] });
}"""


def controls(tab: Tab) -> set[str]:
    """The names of visible buttons, menus and sliders that can be used."""
    names = tab["button, select, input"].evaluate_all(
        """all => all.filter(each => each.checkVisibility() && !each.disabled).map(each =>
            each.getAttribute("aria-label") ?? each.closest("label")?.firstChild.textContent
            ?? each.textContent)"""
    )
    return {each for each in names if not each.startswith("layer ")}


def test_a_page_has_a_heading(open_page: OpenTab) -> None:
    tab = open_page(ENTRIES, title=HOSTILE, about=f"A {HOSTILE} model.", run="my run")
    assert tab["h1"].inner_text() == tab.page.title() == HOSTILE
    assert tab[".about p"].inner_text() == f"A {HOSTILE} model."
    assert tab.shown() == [["my run", "probe", 10]]
    assert tab["img"].count() == 0 and len(tab.asked) == 1, "the page itself"


def test_a_page_with_several_steps_plays(open_page: OpenTab) -> None:
    tab = open_page(ENTRIES, run="my run")
    names = controls(tab)
    assert {"Step", "Play through training", "Compare"} <= names
    assert not {"Run", "Probe", "Copy link"} & names
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
