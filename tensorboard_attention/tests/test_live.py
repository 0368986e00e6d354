"""The Attention tab in a real browser while its log changes, and as a page inside another page."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright import sync_api
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention, encode, page
from tensorboard_attention.tests.conftest import Tab

REFRESH = 10_000  # milliseconds between checks for new steps


def uniform(n: int, heads: tuple[int, ...] = (2,)) -> list[Tensor]:
    """Every query attends equally to all earlier tokens and itself."""
    rows = torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]
    return [rows.repeat(1, count, 1, 1) for count in heads]


def to_itself(n: int, heads: tuple[int, ...] = (2,)) -> list[Tensor]:
    return [torch.eye(n).repeat(1, count, 1, 1) for count in heads]


def log(folder: Path, *steps: list[Tensor], mine: list[float] | None = None) -> SummaryWriter:
    """Maps at every step, in a log that stays open. mine: a score for all heads, one per step."""
    writer = SummaryWriter(str(folder))
    for step, maps in enumerate(steps):
        tokens = [chr(ord("a") + place) for place in range(maps[0].shape[-1])]
        found = {"mine": [torch.full(each.shape[1:2], mine[step]) for each in maps]} if mine else {}
        add_attention(writer, "probe", maps, tokens, step, found)
    writer.flush()
    return writer


def test_new_steps_of_a_run_are_shown(logs: Path, open_tab: Callable[..., Tab]) -> None:
    writer = log(logs / "growing", uniform(4))
    tab = open_tab(run="growing", token=2)
    assert tab.shown() == [["growing", "probe", 0]]
    add_attention(writer, "probe", to_itself(4), list("abcd"), 1)
    writer.close()
    tab.page.clock.run_for(REFRESH)
    tab.shown(["growing", "probe", 1])
    assert tab.listed("to") == {2: 1.0}
    tab[".picker select >> nth=0"].select_option("trained")
    tab.shown(["trained", "attention", 6])  # from the last step to the last step


@pytest.mark.long
def test_a_run_that_is_written_anew_is_not_shown_from_the_cache(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    log(logs / "anew", uniform(4), uniform(4)).close()
    tab = open_tab(run="anew", token=1)
    assert sorted(tab.listed("to")) == [0, 1]
    shutil.rmtree(logs / "anew")
    log(logs / "anew", to_itself(4), to_itself(4)).close()
    tab.page.clock.run_for(REFRESH)
    sync_api.expect(tab[".lists .to li[data-place] >> nth=0"]).to_contain_text("1.000")
    assert tab.listed("to") == {1: 1.0}
    shutil.rmtree(logs / "anew")
    tab.page.clock.run_for(REFRESH)
    sync_api.expect(tab[".notice"]).to_have_text("anew is no longer in the log.")


@pytest.mark.long
def test_scores_and_curves_are_those_that_were_logged(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    log(logs / "scored", *[uniform(4, (2, 3))] * 3, mine=[0.25, 0.75, 0.5]).close()
    tab = open_tab(run="scored", layer=1, head=2)
    score = tab["[data-score=mine]"]
    assert score.locator("b").inner_text() == "0.500"
    curve = score.locator("polyline").get_attribute("points") or ""
    assert score.locator(".bounds").inner_text().split() == ["1", "0"]
    low, high, middle = (float(point.split(",")[1]) for point in curve.split())
    assert low > middle > high and middle == pytest.approx((low + high) / 2, abs=0.1)
    assert score.locator(".meaning").count() == 0
    # Four tokens that attend evenly: the means of log2 of 1, 2, 3, 4, and of 0, 1/2, 1, 3/2.
    assert tab["[data-score=entropy] b"].inner_text() == "1.146"
    assert tab["[data-score='mean distance'] b"].inner_text() == "0.750"


@pytest.mark.long
def test_scores_that_failed_to_load_are_loaded_again(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    log(logs / "shaky", uniform(4), uniform(4)).close()
    tab = open_tab(run="trained")
    tab.page.route("**/scores?run=shaky*", lambda route: route.abort(), times=1)
    with tab.page.expect_event("requestfailed"):
        tab[".picker select >> nth=0"].select_option("shaky")
    tab.shown(["shaky", "probe", 1])
    assert tab["polyline"].count() == 0
    tab.page.keyboard.press("Escape")
    tab[".head >> nth=1"].click()
    tab["polyline >> nth=0"].wait_for(state="attached")


@pytest.mark.long
def test_a_longer_text_beside_a_shorter_one(logs: Path, open_tab: Callable[..., Tab]) -> None:
    log(logs / "long", to_itself(8, (2, 3))).close()
    log(logs / "short", uniform(4, (2, 3))).close()
    tab = open_tab(run="long", run2="short", layer=1, head=0)
    assert tab.shown() == [["long", "probe", 0], ["short", "probe", 0]]
    picture = tab["canvas.picture >> nth=0"]
    box = picture.bounding_box()
    assert box
    picture.hover(position={"x": box["width"] - 12, "y": box["height"] - 12})
    assert tab[".readout >> nth=0"].inner_text() == "7 h → 7 h: 1.000"
    assert tab[".readout >> nth=1"].inner_text().startswith("Row:")


@pytest.mark.long
def test_playback_stops_with_the_comparison(logs: Path, open_tab: Callable[..., Tab]) -> None:
    log(logs / "played", *[uniform(4)] * 40).close()
    tab = open_tab(run="played", run2="played", step2=0)
    tab["button.play >> nth=1"].click()
    sync_api.expect(tab["button.play >> nth=1"]).to_have_text("❚❚")
    tab["button:has-text('Compare')"].click()
    tab.shown(["played", "probe", 39])
    tab.page.clock.run_for(1_000)
    assert tab.shown() == [["played", "probe", 39]]


@pytest.mark.long
def test_an_empty_token_can_be_selected(logs: Path, open_tab: Callable[..., Tab]) -> None:
    writer = SummaryWriter(str(logs / "empty token"))
    add_attention(writer, "probe", uniform(3), ["", "b", ""], 0)
    writer.close()
    tab = open_tab(run="empty token", token=2, sort="constructor")
    assert sorted(tab.listed("to")) == [0, 1, 2]
    assert tab[".sorting select"].input_value() == ""


@pytest.mark.long
def test_a_page_in_a_page(browser: sync_api.Browser, tmp_path: Path) -> None:
    """In a sandboxed frame, with an odd tag, no meanings, and a score that the first step lacks."""
    mine = {"mine": [torch.tensor([0.5, 0.25])]}
    entries = [
        ("constructor", 0, encode(uniform(3), list("abc"))),
        ("constructor", 1, encode(to_itself(3), list("abc"), mine)),
        ("constructor", 2, encode(to_itself(3), list("abc"), mine)),
    ]
    for _, _, logged in entries:  # as older logs are
        header = json.loads(logged[0])
        logged[0] = json.dumps({key: header[key] for key in header if key != "meanings"}).encode()
    page(tmp_path / "heads.html", entries)
    inner = html.escape((tmp_path / "heads.html").read_text("utf-8"))
    outer = f'<iframe sandbox="allow-scripts" width=1200 height=900 srcdoc="{inner}"></iframe>'
    context = browser.new_context()
    view = context.new_page()
    errors: list[str] = []
    view.on("pageerror", lambda error: errors.append(str(error)))
    view.set_content(outer)
    frame = view.frame_locator("iframe")
    frame.locator("main[data-shown]").wait_for()
    assert frame.locator(".head").count() == 2
    curve = frame.locator("[data-score=mine] polyline").get_attribute("points") or ""
    assert len(curve.split()) == 2
    context.close()
    assert errors == []
