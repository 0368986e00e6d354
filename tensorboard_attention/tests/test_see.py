"""What a newcomer sees in the Attention tab at once: in a real browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention
from tensorboard_attention.scores import SCORES
from tensorboard_attention.tests.conftest import Tab, causal_maps, tabs, tensorboard

TOKENS = [" once", " there", " was", " a", " hen", "."] * 2
N = len(TOKENS)
COPIES = [*[0] * (N // 2 - 1), *(query - N // 2 + 1 for query in range(N // 2 - 1, N))]


def pointing(targets: list[int]) -> np.ndarray:
    even = np.tri(N) / np.arange(1, N + 1)[:, None]
    return 0.9 * np.eye(N)[targets] + 0.1 * even


SINK = pointing([0] * N)
PREVIOUS = pointing([max(0, query - 1) for query in range(N)])
HEADS = [np.stack([SINK, PREVIOUS])[None], np.stack([pointing(COPIES), SINK])[None]]
COPY = {"copy": [[0.1, 0.2], [0.95, 0.05]]}


def log(folder: Path, steps: tuple[int, ...], **given: Any) -> None:
    with SummaryWriter(str(folder)) as writer:
        for step in steps:
            add_attention(writer, "attention", HEADS, TOKENS, step, **given)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest run is not the last by name."""
    logs = tmp_path_factory.mktemp("logs")
    log(logs / "z old", (0, 5), scores={"copy": [[0.3, 0.2], [0.1, 0.05]]})
    with SummaryWriter(str(logs / "wide")) as writer:
        add_attention(writer, "attention", causal_maps(0, 24, 16, 16), list("abcdefghijklmnop"), 0)
    given = {"measured": {"copy": "4 tales"}, "counts": {"copy": 43}}
    log(logs / "new", (0, 5, 1000), scores=COPY, **given)
    return logs


@pytest.fixture(scope="module")
def url(logs: Path) -> Iterator[str]:
    with tensorboard(logs) as address:
        yield address


@pytest.fixture
def see(url: str, browser: sync_api.Browser) -> Iterator[Callable[..., Tab]]:
    with tabs(browser, url) as open_it:
        yield open_it


def once(part: sync_api.Locator, code: str, holds: Callable[[Any], bool]) -> Any:
    """What this JavaScript says of the part as soon as it `holds`, since the browser lays out what
    was changed a moment later; after 5 seconds, what it says then."""
    end = time.monotonic() + 5
    while not holds(seen := part.evaluate(code)) and time.monotonic() < end:
        part.page.wait_for_timeout(20)
    return seen


def in_view(part: sync_api.Locator, wanted: bool = True) -> bool:
    """Whether it is (or not, if not `wanted`) wholly in the frame of the tab."""
    code = """node => { const box = node.getBoundingClientRect();
        return box.width > 0 && box.top >= 0 && box.left >= 0 && box.bottom <= innerHeight + 1 &&
            box.right <= innerWidth; }"""
    return once(part, code, lambda seen: seen == wanted) == wanted


def heading(tab: Tab) -> str:
    return tab[".panel h2 >> nth=0"].inner_text()


def focus(tab: Tab) -> int:
    return int(tab[".token.focus >> nth=0"].get_attribute("data-place") or -1)


def test_it_opens_on_what_tells_most(see: Callable[..., Tab]) -> None:
    """The newest run, the head with the highest score that means something, and an example."""
    tab = see()
    assert tab.shown() == [["new", "attention", 1000]]
    assert heading(tab) == "L1H0"
    sentence = tab[".sentence >> nth=0"].inner_text()
    assert sentence.startswith(
        "Mostly looks back at earlier mentions of the word that comes next: 0.95 of its attention "
        "where the next word was mentioned before, on 4 tales (here from "
    )
    query = focus(tab)
    best, weight = max(tab.listed("to").items(), key=lambda each: each[1])
    assert weight > 0.8 and best == COPIES[query] and TOKENS[best] == TOKENS[query + 1]
    assert sentence.endswith(
        f"from '{TOKENS[query].strip()}' to '{TOKENS[best].strip()}', which comes next)"
    )


def test_text_and_map_are_seen_at_once(see: Callable[..., Tab]) -> None:
    """Side by side, with the controls that few need behind a button."""
    tab = see(width=1400, height=900)
    text, picture = tab[".page >> nth=0"], tab["canvas.picture >> nth=0"]
    assert in_view(text) and in_view(picture) and in_view(tab[".verdict >> nth=0"])
    left, right = text.bounding_box(), picture.bounding_box()
    assert left and right and left["x"] + left["width"] < right["x"]
    extra = [".sorting", ".save >> nth=0", "button:has-text('Compare')"]
    assert all(tab[each].is_visible() for each in extra)
    tab["button.more"].click()
    assert not any(tab[each].is_visible() for each in extra)
    assert tab[".picker select >> nth=0"].is_visible() and tab[".play >> nth=0"].is_visible()
    tab.page.keyboard.press("c")
    sync_api.expect(tab["button:has-text('Difference')"]).to_be_visible()


def test_the_grid_says_what_each_head_does_and_three_scores_lead(see: Callable[..., Tab]) -> None:
    tab = see()
    assert tab[".head .role"].all_inner_texts()[2:] == ["copies words 95%", "first token 92%"]
    assert tab[".overview"].inner_text().startswith("1 of 4 heads copies words, ")
    leading = tab[".head-scores > .scores .score"]
    names = leading.evaluate_all("all => all.map(({ dataset }) => dataset.score)")
    assert names == ["copy", "entropy"]  # no importance was logged
    measured = leading.locator(".measured")
    assert measured.all_inner_texts() == [
        "on 4 tales, over 43 tokens",
        "on this text, over 12 tokens",
    ]
    meaning = next(each.meaning for each in SCORES if each.name == "copy")
    assert leading.first.locator(".value span").get_attribute("title") == meaning
    assert tab[".headcurves h3"].inner_text() == "copy, all heads"
    assert tab[".headcurves path"].count() == 4
    tab[".headcurves path >> nth=0"].dispatch_event("click")
    sync_api.expect(tab[".panel h2 >> nth=0"]).not_to_have_text("L1H0")


def test_an_order_chooses_its_first_head(see: Callable[..., Tab]) -> None:
    tab = see()
    tab[".sorting select"].select_option("previous token")
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L0H1")
    query = focus(tab)
    assert max(tab.listed("to"), key=lambda key: tab.listed("to")[key]) == query - 1
    tab[".sorting button"].click()
    sync_api.expect(tab[".panel h2 >> nth=0"]).not_to_have_text("L0H1")
    first = tab[".head >> nth=0"]
    assert first.get_attribute("aria-pressed") == "true"
    tab[".sorting button"].click()
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L0H1")
    tab[".sorting select"].select_option("")
    sync_api.expect(tab[".layer"]).to_have_count(2)
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L0H0")
    assert first.get_attribute("aria-pressed") == "true"


@pytest.mark.long
def test_many_heads_fit(see: Callable[..., Tab]) -> None:
    """The map stays in view while the heads scroll."""
    tab = see(run="wide")
    tops = (
        tab[".layer >> nth=0"]
        .locator(".head")
        .evaluate_all("all => all.map(each => each.getBoundingClientRect().top)")
    )
    assert len(tops) == 16 and len({*tops}) == 1, "one row"
    assert tab["main"].evaluate("() => document.scrollingElement.scrollWidth <= innerWidth")
    picture = tab["canvas.picture >> nth=0"]
    assert in_view(picture)
    last = tab[".head >> nth=383"]
    tab[".head >> nth=2"].hover()
    for _ in range(40):
        tab.page.mouse.wheel(0, 100)
    sync_api.expect(last).to_be_in_viewport()
    assert in_view(picture)
    last.click()
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L23H15")
    assert in_view(picture) and in_view(last)
    tab.page.set_viewport_size({"width": 1280, "height": 500})
    tab[".head-scores"].evaluate("(node) => node.scrollIntoView({ block: 'end' })")
    assert in_view(picture, False) and in_view(tab[".sorting"]), "heads stay while scores are read"


@pytest.mark.long
def test_the_chosen_head_comes_into_view_on_a_phone(see: Callable[..., Tab]) -> None:
    tab = see(width=400, run="wide")
    picture = tab["canvas.picture >> nth=0"]
    assert in_view(picture, False)
    tab[".head >> nth=3"].tap()
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L0H3")
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_be_in_viewport()
    assert in_view(picture)
