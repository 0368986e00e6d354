"""What a newcomer sees in the Attention tab at once: in a real browser."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright import sync_api

from tensorboard_attention import encode
from tensorboard_attention.naming import HeadName, kind_of, overview
from tensorboard_attention.scores import MEANINGS
from tensorboard_attention.tests.conftest import OpenTab, Tab, causal_maps, log

# A passage comes again after 1, 2 and 3 other tokens.
PASSAGE = [" once", " there", " was", " a"]
TOKENS = [*PASSAGE, " hen", *PASSAGE, " fox", ".", *PASSAGE, " red", " cat", ".", *PASSAGE, "!"]
N = len(TOKENS)


def after_last(query: int) -> int:
    """The key after the last earlier occurrence of the last two tokens; 0 without one."""
    pair = TOKENS[query - 1 : query + 1]
    found = [key for key in range(2, query + 1) if TOKENS[key - 2 : key] == pair]
    return max(found, default=0)


REPEATS = [after_last(query) for query in range(N)]


def pointing(targets: list[int]) -> np.ndarray:
    even = np.tri(N) / np.arange(1, N + 1)[:, None]
    return 0.9 * np.eye(N)[targets] + 0.1 * even


SINK = pointing([0] * N)
PREVIOUS = pointing([max(0, query - 1) for query in range(N)])
EVEN = np.tri(N) / np.arange(1, N + 1)[:, None]
START = [np.stack([EVEN, EVEN])[None], np.stack([EVEN, SINK])[None]]
HEADS = [np.stack([SINK, PREVIOUS])[None], np.stack([pointing(REPEATS), SINK])[None]]
HALF = 60  # tokens of a long text; in one half each, two heads look at the token before
MIXED = HeadName("mixed", "", "", "", 0)
CONTINUING = HeadName("continues repeats 61%", "continues repeats", "", "", 0.9)


def said(maps: list[np.ndarray], field: str) -> list[Any]:
    """What the header of these maps says of each head."""
    return [*chain(*json.loads(encode(maps, TOKENS)[0])[field])]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest run is not the last by name."""
    logs = tmp_path_factory.mktemp("logs")
    log(logs / "wide", 0, tokens="abcdefghijklmnop", maps=causal_maps(0, 24, 16, 16))
    n = 2 * HALF
    late, before = np.arange(n)[:, None] >= HALF, np.eye(n, k=-1)
    before[0, 0] = 1
    even = np.tri(n) / np.arange(1, n + 1)[:, None]
    halves = np.stack([np.where(late, even, before), np.where(late, before, even)])
    log(logs / "z long", 0, tokens=[f" w{i}" for i in range(n)], maps=[halves[None]])
    names, other = [[MIXED, MIXED], [CONTINUING, MIXED]], [f" w{i}" for i in range(N)]
    log(logs / "z no repeat", 5, tokens=other, maps=HEADS, names=names)
    given: dict[str, Any] = {
        "scores": {"continues repeats": [[0.1, 0.2], [0.95, 0.05]]},
        "measured": {"continues repeats": "4 tales"},
        "counts": {"continues repeats": 43},
    }
    log(logs / "new", 0, tokens=TOKENS, maps=START, **given)
    log(logs / "new", 5, 1000, tokens=TOKENS, maps=HEADS, **given)
    return logs


def focus(tab: Tab) -> int:
    return int(tab[".token.focus >> nth=0"].get_attribute("data-place") or -1)


def test_it_opens_on_what_tells_most(open_tab: OpenTab) -> None:
    """The newest run, the head whose name says most, and a token where it does that."""
    tab = open_tab()
    assert tab.shown() == [["new", "probe", 1000]]
    assert tab[".panel h2 >> nth=0"].inner_text() == "L1H0"
    interest = [interest for _, _, interest in said(HEADS, "sentences")]
    assert max(interest) == interest[2] > 0.9
    verdict = tab[".verdict >> nth=0"]
    assert verdict.inner_text() == said(HEADS, "sentences")[2][0]
    assert verdict.inner_text().startswith("continues repeats 9")
    assert verdict.get_attribute("title") == said(HEADS, "details")[2]
    assert tab[".sentence >> nth=0"].inner_text() == "", "need was not measured"
    query = focus(tab)
    best, weight = max(tab.listed("to").items(), key=lambda each: each[1])
    assert weight > 0.8 and best == REPEATS[query] and TOKENS[best] == TOKENS[query + 1]


def test_the_address_has_what_was_chosen_alone(open_tab: OpenTab) -> None:
    """So after a reload, the tab goes on to choose the rest: the part of a map, and the token."""
    tab = open_tab(run="z long")
    picture = tab["canvas.picture >> nth=0"]
    sync_api.expect(picture).to_have_class("picture zoomed")

    def link() -> set[str]:
        tab.page.wait_for_timeout(500)  # the address follows
        return {*re.findall(r"p\.attention\.(\w+)=", tab.page.url)}

    assert link() == {"run", "tag", "step"}
    tab[".head >> nth=0"].click()
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L0H0")
    assert link() == {"run", "tag", "step", "layer", "head"}
    tab.page.reload()
    tab.shown()
    sync_api.expect(picture).to_have_class("picture zoomed")
    first = focus(tab)
    tab[".head >> nth=1"].click()
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L0H1")
    assert first < HALF <= focus(tab)
    assert "token" not in link()
    tab["button.more"].click()
    tab["button:has-text('Copy link')"].click()
    tab[".copied:not(:empty)"].wait_for()
    assert "token=" in tab.page.url
    tab = open_tab(run="new", step=5)
    picture = tab["canvas.picture >> nth=0"]
    box = picture.bounding_box()
    assert box and "zoomed" not in (picture.get_attribute("class") or "")
    tab.page.mouse.move(box["x"] + 150, box["y"] + 200)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + 180, box["y"] + 200, steps=3)  # a map that is whole stays
    tab.page.mouse.up()
    assert "zoom" not in link()
    tab[".token >> nth=3"].click()
    tab["[aria-label^='Zoom in']"].click()
    tab[".head >> nth=0"].click()
    assert link() == {"run", "tag", "step", "layer", "head", "token", "zoom"}


def test_the_heads_that_changed_their_name_are_told(open_tab: OpenTab) -> None:
    """Since the step before; at the first, nothing is."""
    tab = open_tab(run="new", step=1000)
    assert tab[".changes"].inner_text() == "Since step 5: no head changed its name."
    tab.page.keyboard.press(",")
    tab.shown(["new", "probe", 5])
    named = ([kind_of(role) for role, _ in said(maps, "roles")] for maps in (START, HEADS))
    names = zip(*named, strict=True)
    changed = [f"L{i // 2}H{i % 2} {a} → {b}" for i, (a, b) in enumerate(names) if a != b]
    assert len(changed) == 3
    assert tab[".changes"].inner_text() == f"Since step 0: {', '.join(changed)}."
    tab.page.keyboard.press(",")
    tab.shown(["new", "probe", 0])
    assert tab[".changes"].inner_text() == ""


def test_three_steps_lead_to_induction(open_tab: OpenTab) -> None:
    tab = open_tab(run="new", layer=0, head=0, token=1)
    part = tab[".induction"]
    part.locator("summary").click()
    percent = said(HEADS, "roles")[2][0].split()[-1]
    part.locator("li").first.wait_for()  # it is made once the part is open
    which, repeat, guess = part.locator("li").all_inner_texts()
    assert which.startswith(f"Of all heads, L1H0 does it most: with {percent} of its attention")
    part.locator("button:has-text('Show L1H0')").click()
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L1H0")
    part.locator("button:has-text('this place')").click()
    sync_api.expect(tab[".token.focus >> nth=0"]).not_to_have_attribute("data-place", "1")
    query = focus(tab)
    weight = tab.listed("to")[REPEATS[query]]
    passage = "".join(TOKENS[query - 1 : query + 1]).strip()
    follows = TOKENS[query + 1].strip()
    assert repeat.startswith(
        f"After '{passage}' it looks at what followed '{passage}' before: '{follows}', "
        f"with {100 * weight:.0f}% of its attention."
    )
    assert guess == (
        f"So it points to '{follows}'. The text goes on with '{follows}': "
        "what it points to is right."
    )


@pytest.mark.parametrize(
    ("link", "text"),
    [
        ({"run": "new", "step": 0}, "At this step, no head of this run continues repeats."),
        ({"run": "z no repeat"}, "No passage of this text repeats."),
    ],
)
def test_where_there_is_no_induction_that_is_said(
    open_tab: OpenTab, link: dict[str, Any], text: str
) -> None:
    tab = open_tab(**link)
    tab[".induction summary"].click()
    sync_api.expect(tab[".induction p >> nth=1"]).to_have_text(text)
    assert tab[".induction li"].count() == ("repeat" in link["run"])


def test_text_and_map_are_seen_at_once(open_tab: OpenTab) -> None:
    """Side by side, with the controls that few need behind a button."""
    tab = open_tab(width=1400, height=900)
    tab.page.keyboard.press("Tab")  # begins at the top
    sync_api.expect(tab[".picker select >> nth=0"]).to_be_focused()
    text, picture = tab[".page >> nth=0"], tab["canvas.picture >> nth=0"]
    for part in (text, picture, tab[".verdict >> nth=0"]):
        sync_api.expect(part).to_be_in_viewport(ratio=1)
    left, right = text.bounding_box(), picture.bounding_box()
    assert left and right and left["x"] + left["width"] < right["x"]
    extra = [".sorting", ".save >> nth=0", "button:has-text('Compare')"]
    assert all(tab[each].is_visible() for each in extra)
    tab["button.more"].click()
    assert not any(tab[each].is_visible() for each in extra)
    assert tab[".picker select >> nth=0"].is_visible() and tab[".play >> nth=0"].is_visible()
    tab.page.keyboard.press("c")
    sync_api.expect(tab["button:has-text('Difference')"]).to_be_visible()


def test_the_name_of_a_head_has_the_whole_width_of_a_phone(open_tab: OpenTab) -> None:
    """Below the buttons that are beside the head."""
    tab = open_tab(width=400)
    panel, name, buttons = (
        tab[f"{each} >> nth=0"].bounding_box() for each in (".panel", ".verdict", ".chosen > .zoom")
    )
    assert panel and name and buttons
    assert name["width"] == pytest.approx(panel["width"], abs=1)
    assert name["y"] >= buttons["y"] + buttons["height"] - 1
    save = tab[".panel:not([hidden]) .save button"]
    assert save.evaluate_all(ON_TOP) == [True, True]
    tab.page.keyboard.press("c")
    sync_api.expect(tab[".panel:not([hidden]) .lists"]).to_have_count(2)
    assert tab[".lists li"].evaluate_all(FITS)
    boxes = [each.bounding_box() for each in tab[".panel:not([hidden])"].all()]
    assert [box and box["width"] for box in boxes] == [panel["width"]] * 2


FITS = "all => all.every((each) => each.scrollWidth <= each.clientWidth)"
ON_TOP = """all => all.map((each) => {
    each.scrollIntoView({ block: "center" });
    const { x, y, width, height } = each.getBoundingClientRect();
    return each.contains(document.elementFromPoint(x + width / 2, y + height / 2));
})"""


def test_the_grid_says_what_each_head_does_and_its_scores_lead(open_tab: OpenTab) -> None:
    tab = open_tab()
    roles = [role for role, _ in said(HEADS, "roles")]
    assert tab[".head .role"].all_inner_texts() == roles
    assert tab[".overview"].inner_text() == f"{overview(roles)}."
    leading = tab[".head-scores > .scores .score"]
    names = leading.evaluate_all("all => all.map(({ dataset }) => dataset.score)")
    assert names == ["continues repeats", "nearby"]  # no need was logged
    measured = leading.locator(".measured").all_inner_texts()
    assert measured == ["on 4 tales, over 43 tokens", "on this text, over 6 tokens"]
    meaning = leading.first.locator(".value span").get_attribute("title")
    assert meaning == MEANINGS["continues repeats"]
    assert tab[".headcurves h3"].inner_text() == "continues repeats, all heads"
    assert tab[".headcurves path"].count() == 4
    short = open_tab(run="wide", layer=0, head=0)  # no query can show a repeat, and few are nearby
    shown = short[".head-scores > .scores .score .value b"]
    sync_api.expect(shown).not_to_have_count(0)
    assert all(float(value) >= 0 for value in shown.all_inner_texts())
    tab[".headcurves path >> nth=0"].dispatch_event("click")
    sync_api.expect(tab[".panel h2 >> nth=0"]).not_to_have_text("L1H0")


def test_an_order_chooses_its_first_head(open_tab: OpenTab) -> None:
    tab = open_tab()
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
def test_many_heads_fit(open_tab: OpenTab) -> None:
    """The map stays in view while the heads scroll."""
    tab = open_tab(run="wide")
    tops = "all => all.map(each => each.getBoundingClientRect().top)"
    assert len({*tab[".layer >> nth=0"].locator(".head").evaluate_all(tops)}) == 1, "one row"
    assert tab["main"].evaluate("() => document.scrollingElement.scrollWidth <= innerWidth")
    picture = tab["canvas.picture >> nth=0"]
    sync_api.expect(picture).to_be_in_viewport(ratio=1)
    last = tab[".head >> nth=383"]
    tab[".head >> nth=2"].hover()
    for _ in range(40):
        tab.page.mouse.wheel(0, 100)
    sync_api.expect(last).to_be_in_viewport()
    sync_api.expect(picture).to_be_in_viewport(ratio=1)
    last.click()
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L23H15")
    sync_api.expect(picture).to_be_in_viewport(ratio=1)
    sync_api.expect(last).to_be_in_viewport(ratio=1)
    tab.page.set_viewport_size({"width": 1280, "height": 500})
    tab[".head-scores"].evaluate("(node) => node.scrollIntoView({ block: 'end' })")
    sync_api.expect(picture).not_to_be_in_viewport(ratio=1)
    sync_api.expect(tab[".sorting"]).to_be_in_viewport(ratio=1)  # heads stay while scores are read


@pytest.mark.long
def test_the_chosen_head_comes_into_view_on_a_phone(open_tab: OpenTab) -> None:
    tab = open_tab(width=400, run="wide")
    picture = tab["canvas.picture >> nth=0"]
    sync_api.expect(picture).not_to_be_in_viewport(ratio=1)
    tab[".head >> nth=3"].tap()
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L0H3")
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_be_in_viewport()
    sync_api.expect(picture).to_be_in_viewport(ratio=1)
