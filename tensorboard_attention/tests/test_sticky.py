"""The map of the chosen head stays on the screen, wherever the tab is scrolled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention, encode, page
from tensorboard_attention.tests.conftest import Tab, causal_maps, in_view, once, tensorboard

pytestmark = pytest.mark.long

TOKENS = [" once", " there", " was", " a", " hen", " that", " hopped", "."] * 6
STEPS = (0, 5, 10)
ALONE = "data/plugin_entry.html?name=attention"
SIZES = [(1280, 800), (1100, 600), (1920, 1080), (1920, 800), (1440, 900)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    logs = tmp_path_factory.mktemp("logs")
    with SummaryWriter(str(logs / "wide")) as writer:
        add_attention(writer, "probe", causal_maps(0, 24, 16, 40), TOKENS[:40], 0)
    with SummaryWriter(str(logs / "small")) as writer:
        for step in STEPS:
            add_attention(writer, "probe", causal_maps(step, n=48), TOKENS, step)
    with tensorboard(logs) as address:
        yield address


def check_everywhere(tab: Tab, *shown: str) -> None:
    """Whether these parts are on the screen wherever the tab is scrolled, and after each choice."""
    root = tab["main"]
    height = "() => document.scrollingElement.scrollHeight - innerHeight"
    end = once(root, height, lambda height: height > 100)
    assert end > 100, "there is something to scroll"
    for place in (0, end // 3, end):
        for key in ("", "ArrowRight", "ArrowLeft"):
            root.evaluate("(_, place) => scrollTo(0, place)", place)
            before = tab[".panel h2 >> nth=0"].inner_text()
            if key:
                tab.page.keyboard.press(key)
                sync_api.expect(tab[".panel h2 >> nth=0"]).not_to_have_text(before)
            for part in shown:
                assert in_view(tab[part]), (part, place, key)
    root.evaluate("(_, place) => scrollTo(0, place)", end)
    tab[".head >> nth=1"].click()
    for part in shown:
        assert in_view(tab[part])


PARTS = [".panel h2 >> nth=0", ".sentence >> nth=0", "canvas.picture >> nth=0"]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("run", ["small", "wide"])
def test_the_map_stays_on_the_screen(
    url: str, browser: sync_api.Browser, run: str, size: tuple[int, int], alone: bool
) -> None:
    place = f"{ALONE}#" if alone else "#"
    tab = Tab(browser, f"{url}{place}attention&p.attention.run={run}&p.attention.head=0", not alone)
    tab.page.set_viewport_size({"width": size[0], "height": size[1]})
    if run == "small" or size == (1280, 800):  # all of the wide one fits a larger screen
        check_everywhere(tab, *PARTS)
    else:
        assert all(in_view(tab[each]) for each in PARTS)
    tab.close()


@pytest.mark.parametrize("size", [(1280, 800), (1920, 1080)])
def test_both_maps_of_a_comparison_stay_on_the_screen(
    url: str, browser: sync_api.Browser, size: tuple[int, int]
) -> None:
    link = "&".join(
        f"p.attention.{each}" for each in ("run=small", "head=0", "run2=small", "step2=0")
    )
    tab = Tab(browser, f"{url}#attention&{link}")
    tab.page.set_viewport_size({"width": size[0], "height": size[1]})
    check_everywhere(
        tab, ".panel h2 >> nth=0", "canvas.picture >> nth=0", "canvas.picture >> nth=1"
    )
    tab["button:has-text('Difference')"].click()
    check_everywhere(tab, ".panel.difference h2", ".panel.difference canvas", ".difference .more")
    tab.close()


def test_the_map_stays_on_the_screen_of_a_page(browser: sync_api.Browser, tmp_path: Path) -> None:
    entries = [("probe", step, encode(causal_maps(step, n=48), TOKENS)) for step in STEPS]
    page(tmp_path / "heads.html", entries, "A heading", "About the model. " * 8)
    tab = Tab(browser, (tmp_path / "heads.html").as_uri(), frame=False)
    for width, height in ((1280, 800), (1920, 800)):
        tab.page.set_viewport_size({"width": width, "height": height})
        check_everywhere(tab, *PARTS)
    tab.close()


def test_what_is_below_the_map_can_be_read(url: str, browser: sync_api.Browser) -> None:
    """Nothing stays behind the map for good."""
    tab = Tab(browser, f"{url}#attention&p.attention.run=small")
    tab.page.set_viewport_size({"width": 1280, "height": 800})
    for part in (".lists >> nth=0", ".score >> nth=-1"):
        last = tab[part]
        covered = """node => { const box = node.getBoundingClientRect();
            const [x, y] = [box.left + 5, box.bottom - 5];
            return y > innerHeight || !node.contains(document.elementFromPoint(x, y)); }"""
        end = tab["main"].evaluate("() => document.scrollingElement.scrollHeight - innerHeight")
        places = []
        for place in range(0, end + 50, 50):
            tab["main"].evaluate("(_, place) => scrollTo(0, place)", place)
            places.append(last.evaluate(covered))
        assert not all(places)
    tab.close()


def test_a_focused_token_is_not_behind_the_map(url: str, browser: sync_api.Browser) -> None:
    tab = Tab(browser, f"{url}#attention&p.attention.run=small&p.attention.token=3")
    tab.page.set_viewport_size({"width": 1280, "height": 800})
    end = tab["main"].evaluate("() => document.scrollingElement.scrollHeight - innerHeight")
    for place in (end, end // 2, end // 4):
        tab["main"].evaluate("(_, place) => scrollTo(0, place)", place)
        tab[".token.focus"].focus()
        seen = """node => { const box = node.getBoundingClientRect();
            return node.contains(document.elementFromPoint(box.left + 3, box.top + 3)); }"""
        assert tab[".token.focus"].evaluate(seen)
        tab[".token.focus"].evaluate("node => node.blur()")
    tab.close()


def test_a_chosen_head_comes_into_view_on_a_low_screen(url: str, browser: sync_api.Browser) -> None:
    tab = Tab(browser, f"{url}#attention&p.attention.run=small&p.attention.head=0")
    tab.page.set_viewport_size({"width": 1280, "height": 560})
    for key in ("ArrowRight", "ArrowLeft"):
        tab["main"].evaluate("() => scrollTo(0, 1e6)")
        before = tab[".panel h2 >> nth=0"].inner_text()
        tab.page.keyboard.press(key)
        sync_api.expect(tab[".panel h2 >> nth=0"]).not_to_have_text(before)
        assert in_view(tab["canvas.picture >> nth=0"])
    tab.close()
