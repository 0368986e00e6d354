"""A page: its heading, what it opens on, and no control that does nothing."""

from __future__ import annotations

import base64
import http.server
import json
import math
import threading
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention, encode, page
from tensorboard_attention.tests.conftest import HOSTILE, Tab, causal_maps, tensorboard

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


def test_a_page_has_a_heading(open_page: Open) -> None:
    tab = open_page(ENTRIES, title=HOSTILE, about=f"A {HOSTILE} model.", run="my run")
    assert tab["h1"].inner_text() == HOSTILE
    assert tab[".about p"].inner_text() == f"A {HOSTILE} model."
    assert tab.shown() == [["my run", "probe", 10]]
    assert tab["img"].count() == 0


@pytest.mark.long
def test_a_page_with_one_step_has_no_control_that_does_nothing(open_page: Open) -> None:
    tab = open_page(ENTRIES[-1:])
    names = controls(tab)
    assert "Order" in names
    assert not {"Run", "Probe", "Step", "Play through training", "Compare", "Copy link"} & names
    assert "10" in tab[".stepper output >> nth=0"].inner_text()
    assert "1 of 1" not in tab[".stepper >> nth=0"].inner_text()
    # Nor do their keys do anything.
    for key in ("c", " ", ".", ","):
        tab.page.keyboard.press(key)
    tab.page.clock.run_for(1_000)
    assert tab.shown() == [[".", "probe", 10]]
    assert tab[".play >> nth=0"].get_attribute("aria-label") == "Play through training"


def test_a_page_with_several_steps_plays(open_page: Open) -> None:
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


@pytest.mark.long
def test_a_page_with_several_probes(open_page: Open) -> None:
    tab = open_page([*ENTRIES[-1:], ("other", 3, ENTRIES[0][2])])
    names = controls(tab)
    assert {"Probe", "Compare"} <= names and not {"Run", "Step"} & names
    tab["select >> nth=1"].select_option("other")
    tab.shown([".", "other", 3])


@pytest.mark.long
def test_a_page_without_a_name_for_the_run_shows_none(open_page: Open) -> None:
    tab = open_page(ENTRIES)
    assert not tab[".field:has-text('Run') >> nth=0"].is_visible()
    tab = open_page(ENTRIES, run="my run")
    assert tab[".field:has-text('Run') select >> nth=0"].input_value() == "my run"


@pytest.mark.long
def test_a_link_can_be_copied_where_others_can_open_it(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    page(tmp_path / "heads.html", ENTRIES)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://localhost:{server.server_port}/heads.html"
        tab = Tab(browser, url, frame=False)
        assert "Copy link" in controls(tab)
        tab.close()
        server.shutdown()


@pytest.mark.long
def test_a_page_without_javascript_says_what_it_needs(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    path = tmp_path / "heads.html"
    page(path, ENTRIES, title="My heads", about="Two layers.")
    context = browser.new_context(java_script_enabled=False)
    view = context.new_page()
    view.goto(path.as_uri())
    text = view.locator("body").inner_text()
    assert "My heads" in text and "Two layers." in text and "JavaScript" in text
    context.close()
    context = browser.new_context()
    view = context.new_page()
    view.goto(path.as_uri())
    view.locator("main[data-shown]").wait_for()
    assert "JavaScript" not in view.locator("body").inner_text()
    context.close()


def test_an_old_browser_is_told_what_the_page_needs(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    page(tmp_path / "heads.html", ENTRIES)
    view = browser.new_page()
    view.add_init_script("delete window.DecompressionStream")
    view.goto((tmp_path / "heads.html").as_uri())
    view.get_by_text("This page needs a newer browser").wait_for()
    view.close()


def test_a_page_takes_little_more_than_its_maps(tmp_path: Path) -> None:
    """Nine steps of two layers of four heads and 64 tokens, as the default run logs them."""
    tokens = [f" w{i}" for i in range(64)]
    entries = [("probe", step, encode(causal_maps(step, 2, 4, 64), tokens)) for step in range(9)]
    page(tmp_path / "heads.html", entries)
    maps = sum(4 * math.ceil(len(maps) / 3) for *_, (_, maps) in entries)
    assert (tmp_path / "heads.html").stat().st_size - maps < 85_000


def test_headers_are_stored_once_and_come_back(open_page: Open, tmp_path: Path) -> None:
    """What all steps share is stored once; each step has only the fields of its own."""
    more = {"note": "N" * 500, "something": {"else": ["<", None, 1.5]}, "__proto__": 3}
    entries = []
    for i in range(30):
        header, maps = encode(causal_maps(i % 3, 1, 1, 4), list("abcd"))
        header = json.dumps({**json.loads(header), **(more if i % 2 else {})}).encode()
        entries.append(("probe", i, [header, maps]))
    tab = open_page(entries)
    text = (tmp_path / "heads.html").read_text("utf-8")
    packed = text.split('id="packed">')[1].split("<")[0]
    assert "N" * 500 not in text
    assert zlib.decompress(base64.b64decode(packed)).decode().count("N" * 500) == 1
    note = tab[".panel:not([hidden]) .note"]
    assert note.inner_text() == "N" * 500
    tab["input[type=range] >> nth=0"].fill("28")
    tab.shown([".", "probe", 28])
    assert note.inner_text() == ""


@pytest.mark.long
def test_the_selects_of_the_tab_show_a_single_run(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    writer = SummaryWriter(str(tmp_path / "only"))
    add_attention(writer, "probe", causal_maps(0), TOKENS, 0)
    writer.flush()
    with tensorboard(tmp_path) as url:
        tab = Tab(browser, f"{url}#attention")
        assert not {"Run", "Probe", "Step", "Compare"} & controls(tab)
        assert "Copy link" in controls(tab)
        assert tab["select >> nth=0"].input_value() == "only"
        # A second step comes: now there is a choice.
        add_attention(writer, "probe", causal_maps(1), TOKENS, 1)
        writer.close()
        tab.page.clock.run_for(11_000)
        tab.shown(["only", "probe", 1])
        assert {"Step", "Play through training", "Compare"} <= controls(tab)
        tab.close()
