"""The map of the chosen head stays on the screen, wherever the tab is scrolled."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention, encode
from tensorboard_attention.tests.conftest import Tab, causal_maps, in_view, once, tabs, tensorboard

pytestmark = pytest.mark.long

TOKENS = [" once", " there", " was", " a", " hen", " that", " hopped", "."] * 6
STEPS = (0, 5, 10)
SIZES = [(1280, 800), (1100, 600), (1920, 1080)]


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


@pytest.fixture
def see(url: str, browser: sync_api.Browser) -> Iterator[Callable[..., Tab]]:
    with tabs(browser, url) as open_it:
        yield open_it


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


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("run", ["small", "wide"])
def test_the_map_stays_on_the_screen(
    see: Callable[..., Tab], run: str, size: tuple[int, int]
) -> None:
    tab = see(*size, run=run, head=0)
    if run == "small" or size == (1280, 800):  # all of the wide one fits a larger screen
        check_everywhere(tab, *PARTS)
    else:
        assert all(in_view(tab[part]) for part in PARTS)


@pytest.mark.parametrize("size", [(1280, 800), (1920, 1080)])
def test_both_maps_of_a_comparison_stay_on_the_screen(
    see: Callable[..., Tab], size: tuple[int, int]
) -> None:
    tab = see(*size, run="small", head=0, run2="small", step2=0)
    check_everywhere(
        tab, ".panel h2 >> nth=0", "canvas.picture >> nth=0", "canvas.picture >> nth=1"
    )
    tab["button:has-text('Difference')"].click()
    check_everywhere(tab, ".panel.difference h2", ".panel.difference canvas", ".difference .more")


def test_the_map_stays_on_the_screen_of_a_page(open_page: Callable[..., Tab]) -> None:
    entries = [("probe", step, encode(causal_maps(step, n=48), TOKENS)) for step in STEPS]
    tab = open_page(entries, title="A heading", about="About the model. " * 8)
    for width, height in ((1280, 800), (1920, 800)):
        tab.page.set_viewport_size({"width": width, "height": height})
        check_everywhere(tab, *PARTS)


def test_what_is_below_the_map_can_be_read(see: Callable[..., Tab]) -> None:
    """Nothing stays behind the map for good."""
    tab = see(1280, 800, run="small")
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


def test_a_focused_token_is_not_behind_the_map(see: Callable[..., Tab]) -> None:
    tab = see(1280, 800, run="small", token=3)
    end = tab["main"].evaluate("() => document.scrollingElement.scrollHeight - innerHeight")
    for place in (end, end // 2, end // 4):
        tab["main"].evaluate("(_, place) => scrollTo(0, place)", place)
        tab[".token.focus"].focus()
        seen = """node => { const box = node.getBoundingClientRect();
            return node.contains(document.elementFromPoint(box.left + 3, box.top + 3)); }"""
        assert tab[".token.focus"].evaluate(seen)
        tab[".token.focus"].evaluate("node => node.blur()")


def test_a_chosen_head_comes_into_view_on_a_low_screen(see: Callable[..., Tab]) -> None:
    tab = see(1280, 560, run="small", head=0)
    for key in ("ArrowRight", "ArrowLeft"):
        tab["main"].evaluate("() => scrollTo(0, 1e6)")
        before = tab[".panel h2 >> nth=0"].inner_text()
        tab.page.keyboard.press(key)
        sync_api.expect(tab[".panel h2 >> nth=0"]).not_to_have_text(before)
        assert in_view(tab["canvas.picture >> nth=0"])
