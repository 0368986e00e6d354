"""What a newcomer sees in the Attention tab at once: in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention, attention_summary
from tensorboard_attention.scores import SCORES
from tensorboard_attention.tests.conftest import Tab, causal_maps, in_view, tabs, tensorboard

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
# By step. In layer 0, no share rises suddenly; in layer 1, those of both heads do.
RISING = {
    step: {
        "induction": [[steady, falling], [sudden, broken]],
        "importance": [[each, each], [each, each]],  # in nats
        "other": [[10 * each, 10 * each], [each, each]],
    }
    for step, steady, falling, sudden, broken, each in (
        (0, 0.10, 0.9, 0.02, float("nan"), 0.1),
        (250, 0.30, 0.9, 0.38, 0.1, 0.1),
        (500, 0.50, 0.1, 0.08, float("nan"), 0.2),
        (750, 0.70, 0.1, 0.61, 0.8, 0.9),
        (1000, 0.90, 0.30, 0.93, 0.7, 0.9),
    )
}


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
    with SummaryWriter(str(logs / "small")) as writer:
        maps = torch.eye(64)[[0, *range(63)]].expand(1, 16, 64, 64)
        add_attention(writer, "attention", [maps], ["a"] * 64, 0)
    with SummaryWriter(str(logs / "older log")) as writer:
        for step, copy in enumerate((0.1, 0.95)):
            scores = {"copy": [[0.1, 0.2], [copy, 0.05]]}
            summary = attention_summary("attention", HEADS, TOKENS, scores)
            header = json.loads(summary.value[0].tensor.string_val[0])
            for key in ("units", "measured", "counts", "sentences"):
                del header[key]
            summary.value[0].tensor.string_val[0] = json.dumps(header).encode()
            writer._get_file_writer().add_summary(summary, step)
    log(logs / "one step", (7,), scores=COPY)
    for step, scores in RISING.items():
        log(logs / "rising", (step,), scores=scores, measured="random tokens, repeated")
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
        "from tokens before such a word, on 4 tales (here from "
    )
    query = focus(tab)
    best, weight = max(tab.listed("to").items(), key=lambda each: each[1])
    assert weight > 0.8 and best == COPIES[query] and TOKENS[best] == TOKENS[query + 1]
    assert sentence.endswith(
        f"from '{TOKENS[query].strip()}' to '{TOKENS[best].strip()}', which comes next)"
    )


@pytest.mark.long
def test_older_logs_open_on_the_highest_score(see: Callable[..., Tab]) -> None:
    tab = see(run="older log")
    assert heading(tab) == "L1H0" and tab[".sentence >> nth=0"].inner_text() == ""
    assert max(tab.listed("to").values()) > 0.9
    (meaning,) = [each.meaning for each in SCORES if each.name == "entropy"]
    assert tab["[data-score=entropy] .meaning"].inner_text() == meaning
    assert rises(tab) == [], "they do not say what is a share"


def test_the_grid_says_what_each_head_does_and_three_scores_lead(see: Callable[..., Tab]) -> None:
    tab = see()
    assert tab[".head .role"].all_inner_texts()[2:] == ["copies words 95%", "first token 92%"]
    assert tab[".overview"].inner_text().startswith("1 of 4 heads copies words, ")
    leading = tab[".told > .scores .score"]
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


def test_a_run_opens_on_its_clearest_head_until_one_is_chosen(see: Callable[..., Tab]) -> None:
    tab = see()
    select = tab[".picker >> nth=0"].locator("select").first
    select.select_option("rising")
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L1H0")
    tab["[aria-label='layer 0, head 1']"].click()
    select.select_option("new")
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L0H1")


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
@pytest.mark.parametrize("width", [1280, 1920, 400])
def test_the_scores_of_many_sorted_heads_are_readable(see: Callable[..., Tab], width: int) -> None:
    tab = see(run="wide", width=width)
    tab[".sorting select"].select_option("entropy")
    sync_api.expect(tab[".caption >> nth=0"]).to_contain_text("L")
    cut = "all => all.filter((one) => one.scrollWidth > one.clientWidth).length"
    assert tab[".caption"].evaluate_all(cut) == 0


@pytest.mark.long
def test_a_chosen_token_stays_when_heads_change(see: Callable[..., Tab]) -> None:
    tab = see()
    tab[".token[data-place='3'] >> nth=0"].click()
    tab[".head >> nth=1"].click()
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L0H1")
    assert focus(tab) == 3


@pytest.mark.long
def test_meanings_and_places_are_read_without_a_mouse(see: Callable[..., Tab]) -> None:
    tab = see()
    for score in [each for each in SCORES if each.needs not in ("losses", "random ids")]:
        counts = {"induction": 6, "duplicate token": 6, "previous token": 11, "first token": 11}
        place = f"on this text, over {counts.get(score.name, 12)} tokens"
        if score.name == "copy":
            place = "on 4 tales, over 43 tokens"
        elif score.name == "nearby":  # the text is too short for it
            place = ""
        card = tab[f"[data-score='{score.name}']"]
        # A score that no token can show has neither.
        texts = card.locator(".meaning, .measured").all_inner_texts()
        assert texts == ([score.meaning, place] if place else [score.meaning])
    assert tab[".scale >> nth=0"].inner_text().startswith("Attention weight")
    assert tab[".differs"].count() == 0


@pytest.mark.long
def test_scores_of_different_texts_are_not_compared_silently(see: Callable[..., Tab]) -> None:
    tab = see(run2="z old", step2=5)
    copy = tab["[data-score=copy]"]
    assert copy.locator(".differs").inner_text() == (
        "not comparable, measured on 4 tales | an unknown text"
    )
    assert tab["[data-score=entropy] .differs"].count() == 0, "of the same tokens"
    assert tab["[data-score=entropy] .measured"].inner_text() == "on this text, over 12 tokens"
    tab[".picker >> nth=1"].locator("select").first.select_option("wide")
    sync_api.expect(tab["[data-score=entropy] .differs"]).to_have_text(
        "not comparable, each measured on its own text"
    )
    sync_api.expect(copy.locator(".differs")).to_have_count(0)  # the other one has no such score


def test_curves_share_an_axis_and_have_values(see: Callable[..., Tab]) -> None:
    tab = see()
    tab["[data-score=copy] polyline"].wait_for(state="attached")
    for name in ("copy", "induction", "first token", "same token"):
        assert tab[f"[data-score='{name}'] .bounds"].inner_text().split() == ["1", "0"]
    entropy = tab["[data-score=entropy]"]
    high, low = map(float, entropy.locator(".bounds").inner_text().split())
    assert low == 0
    values = []
    for layer, head in np.ndindex(2, 2):
        tab[f"[aria-label='layer {layer}, head {head}']"].click()
        sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text(f"L{layer}H{head}")
        values.append(float(entropy.locator("b").inner_text()))
    assert high == pytest.approx(max(values), abs=0.01), "the largest of all heads"
    assert entropy.locator(".axis").inner_text().split("\n") == ["step 0", "1,000"]
    chart = entropy.locator("svg")
    box = chart.bounding_box()
    assert box
    chart.hover(position={"x": 0.3 * box["width"], "y": 20})
    value = entropy.locator("b").inner_text()
    assert entropy.locator("output").inner_text() == f"step 5: {value}"
    chart.hover(position={"x": 0.9 * box["width"], "y": 20})
    assert entropy.locator("output").inner_text() == f"step 1,000: {value}"
    tab[".panel h2 >> nth=0"].hover()
    assert entropy.locator("output").inner_text() == ""


def rises(tab: Tab) -> list[str]:
    tab[".chart polyline >> nth=0"].wait_for(state="attached")
    return tab[".sudden"].all_inner_texts()


@pytest.mark.parametrize("width", [1280, 400])
def test_a_sudden_rise_of_a_share_is_named(see: Callable[..., Tab], width: int) -> None:
    """The largest, between steps that have values. Scores that are not shares are not named."""
    tab = see(run="rising", layer=1, head=0, width=width)
    other = "other rose from 0.20 to 0.90 between steps 500 and 750"
    assert rises(tab) == ["induction rose from 0.08 to 0.61 between steps 500 and 750", other]
    score = tab["[data-score=induction]"]
    (chart, sentence) = (score.locator(each).bounding_box() for each in (".axis", ".sudden"))
    assert chart and sentence and chart["y"] + chart["height"] <= sentence["y"] + 1
    assert tab["main"].evaluate("() => document.scrollingElement.scrollWidth <= innerWidth")
    cut = "each => each.scrollWidth > each.clientWidth"
    assert not score.locator(".sudden").evaluate(cut)
    tab["[aria-label='layer 1, head 1']"].click()
    sync_api.expect(score.locator(".sudden")).to_have_text(
        "induction rose from 0.10 to 0.80 between steps 250 and 750"
    )
    for head in (0, 1):
        tab[f"[aria-label='layer 0, head {head}']"].click()
        sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text(f"L0H{head}")
        sync_api.expect(tab[".sudden"]).to_have_count(0)


@pytest.mark.long
def test_sudden_rises_of_two_views_are_told_apart(see: Callable[..., Tab]) -> None:
    text = "induction rose from 0.08 to 0.61 between steps 500 and 750"
    tab = see(run="rising", layer=1, head=0, run2="new", step2=5)
    assert rises(tab)[0] == f"first view: {text}"
    tab = see(run="rising", layer=1, head=0, run2="rising", step2=0)
    assert rises(tab)[0] == text, "both views have the same curve"


@pytest.mark.long
def test_one_step_has_numbers_and_no_charts(see: Callable[..., Tab]) -> None:
    tab = see(run="one step", layer=1, head=0)
    assert tab["[data-score=copy] b"].inner_text() == "0.950"
    assert tab[".chart"].count() == tab[".axis"].count() == 0


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
    tab["main"].evaluate("() => scrollTo(0, document.scrollingElement.scrollHeight)")
    assert in_view(picture, False) and in_view(tab[".sorting"]), "heads stay while scores are read"


@pytest.mark.long
def test_a_small_thumbnail_shows_thin_lines(see: Callable[..., Tab]) -> None:
    """A browser that shrinks a picture leaves out pixels: it is made as small as it is shown."""
    sides = "node => [node.width, node.getBoundingClientRect().width]"
    pixels, shown = see(run="small")[".head canvas >> nth=5"].evaluate(sides)
    assert pixels <= shown + 8


@pytest.mark.long
def test_the_chosen_head_comes_into_view_on_a_phone(see: Callable[..., Tab]) -> None:
    tab = see(width=400, run="wide")
    picture = tab["canvas.picture >> nth=0"]
    assert in_view(picture, False)
    tab[".head >> nth=3"].tap()
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L0H3")
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_be_in_viewport()
    assert in_view(picture)


def cell_at(tab: Tab, query: int, key: int) -> dict[str, float]:
    """Where a cell is on the canvas of the whole map."""
    box = tab["canvas.picture >> nth=0"].bounding_box()
    assert box
    margin = box["width"] - 7 - side(tab)
    unit = side(tab) / N
    return {"x": margin + (key + 0.5) * unit, "y": margin + (query + 0.5) * unit}


def side(tab: Tab) -> float:
    """Of the map without its labels: the longest has six characters."""
    box = tab["canvas.picture >> nth=0"].bounding_box()
    assert box
    return box["width"] - 7 - (8 + 7.3 * 6)


# The brightest channel of the darkest pixel up to 3 pixels left of a place.
DARKEST = """(canvas, [x, y]) => {
    const ratio = canvas.width / canvas.getBoundingClientRect().width;
    const [wide, left] = [3 * ratio, (x - 3) * ratio];
    const { data } = canvas.getContext("2d").getImageData(left, y * ratio, wide, 1);
    const pixels = Array.from({ length: data.length / 4 }, (_, i) => data.slice(4 * i, 4 * i + 3));
    return Math.min(...pixels.map((each) => Math.max(...each)));
}"""


@pytest.mark.long
def test_a_cell_marks_its_tokens(see: Callable[..., Tab]) -> None:
    tab = see(token=0)
    picture = tab["canvas.picture >> nth=0"]
    at = cell_at(tab, 7, 2)
    frame = [at["x"] - side(tab) / N / 2, at["y"]]
    before = picture.evaluate(DARKEST, frame)
    picture.hover(position=at)  # type: ignore[arg-type]
    assert re.fullmatch(r"7 ·there → 2 ·was: 0\.9\d\d", tab[".readout >> nth=0"].inner_text())
    assert focus(tab) == 7
    assert tab[".token.key"].evaluate_all("all => all.map(e => e.dataset.place)") == ["2"]
    assert picture.evaluate(DARKEST, frame) < 60 < before, "a dark frame"
    tab[".panel h2 >> nth=0"].hover()
    assert focus(tab) == 0 and tab[".token.key"].count() == 0
    picture.click(position=at)  # type: ignore[arg-type]
    tab[".panel h2 >> nth=0"].hover()
    assert focus(tab) == 7 and tab[".token.key"].count() == 1, "what was clicked stays marked"
    tab.page.keyboard.press("Escape")
    sync_api.expect(tab[".token.focus"]).to_have_count(0)
    assert tab[".token.key"].count() == 0
    assert "Hover over or tap a token" in tab[".lists >> nth=0"].inner_text()


@pytest.mark.long
@pytest.mark.parametrize("how", ["cell", "token"])
def test_zoom_goes_to_what_is_chosen(see: Callable[..., Tab], how: str) -> None:
    tab = see()
    picture, readout = tab["canvas.picture >> nth=0"], tab[".readout >> nth=0"]
    if how == "cell":
        at = cell_at(tab, 11, 1)
        picture.click(position=at)  # type: ignore[arg-type]
        wanted = (11, 1)
    else:
        tab[".token[data-place='10'] >> nth=0"].click()
        at = cell_at(tab, 10, 10)
        wanted = (10, 10)
    tab[".panel h2 >> nth=0"].hover()
    back = [tab.root.get_by_role("button", name=name) for name in ("Zoom out", "Whole map")]
    for each in back:
        sync_api.expect(each).to_be_disabled()
    for _ in range(4):
        tab.page.keyboard.press("+")
    sync_api.expect(picture).to_have_class("picture zoomed")
    for each in back:
        sync_api.expect(each).to_be_enabled()
    picture.hover(position=at)  # type: ignore[arg-type]
    query, key = wanted
    assert readout.inner_text().startswith(f"{query} ")
    assert f"→ {key} " in readout.inner_text()


@pytest.mark.long
def test_zoom_finds_what_is_out_of_sight(see: Callable[..., Tab]) -> None:
    tab = see(token=1)
    picture, readout = tab["canvas.picture >> nth=0"], tab[".readout >> nth=0"]
    for _ in range(4):
        tab.page.keyboard.press("+")
    at = cell_at(tab, 0, 0)
    box = picture.bounding_box()
    assert box
    middle = {"x": box["width"] / 2 + 20, "y": box["height"] / 2 + 20}
    tab.page.mouse.move(box["x"] + 300, box["y"] + 300)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + at["x"], box["y"] + at["y"], steps=5)
    tab.page.mouse.up()
    picture.hover(position=middle)  # type: ignore[arg-type]
    assert not readout.inner_text().startswith("1 ")
    tab[".panel h2 >> nth=0"].hover()
    tab.page.keyboard.press("+")
    picture.hover(position=middle)  # type: ignore[arg-type]
    assert readout.inner_text().startswith("1 ·there → 1 ")
