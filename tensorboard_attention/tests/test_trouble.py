"""Heads that are not finite, servers that are gone, steps that cannot be shown."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention
from tensorboard_attention.tests.conftest import Tab, causal_maps, log, serve
from tensorboard_attention.tests.events import event, write

pytestmark = pytest.mark.long


def broken_maps() -> list[torch.Tensor]:
    maps = causal_maps(0, n=8)
    maps[1][0, 0, 3, 1] = torch.nan
    return maps


def test_heads_that_are_not_finite_are_marked(logs: Path, open_tab: Callable[..., Tab]) -> None:
    writer = SummaryWriter(str(logs / "broken head"))
    add_attention(writer, "probe", broken_maps(), list("abcdefgh"), 0)
    writer.close()
    tab = open_tab(run="broken head", layer=1, head=0)
    marked = "all => all.map(each => /NaN/.test(each.textContent + each.ariaLabel))"
    assert tab[".head"].evaluate_all(marked) == [False, False, True, False]
    coloured = """all => all.map((each) => {
        const { data } = each.getContext("2d").getImageData(0, 0, each.width, each.height);
        return data.slice(0, 4).join();
    })"""
    corners = tab[".head canvas"].evaluate_all(coloured)
    assert len(set(corners)) == 2 and corners[2] != corners[0], "a cross through the map"
    assert "not finite (NaN)" in tab[".panel:not(.difference) .note >> nth=0"].inner_text()
    tab[".head >> nth=3"].click()
    sync_api.expect(tab[".panel:not(.difference) .note >> nth=0"]).not_to_contain_text("This head")


def test_what_is_not_shown_of_a_run_is_said_beside_it(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    """A run without any step that can be shown is listed, and cannot be chosen."""
    log(logs / "half", 0)
    write(logs / "half", event(1, b"{}"))
    write(logs / "nothing", event(1, b"{}"))
    (logs / "half" / "losses.json").write_text("[NaN]")
    try:
        tab = open_tab(run="half")
        name, reason = "events.out.tfevents.1", "its format version is not 1"
        sync_api.expect(tab[".problems li >> nth=0"]).to_contain_text(f"{name}: step 1 of")
        sync_api.expect(tab[".notice"]).to_have_text(
            "losses.json is not read: it is not in the format"
        )
        listed = tab[".picker select >> nth=0"].evaluate(
            "all => Object.fromEntries(Array.from(all, (one) => [one.value, "
            "[one.disabled, one.textContent]]))"
        )
        assert listed["half"] == [False, "half ⚠"]
        assert listed["trained"] == [False, "trained"]
        assert listed["nothing"][0] and reason in listed["nothing"][1]
    finally:  # other tests have these logs too
        shutil.rmtree(logs / "half")
        shutil.rmtree(logs / "nothing")


def test_weights_that_are_not_finite_are_not_zeros(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    """In files and lists, those of row 3 are unknown; the zeros of other rows are 0."""
    maps = broken_maps()
    maps[1][0, 0, 3] = torch.nan
    maps[1][0, 0, 2] = torch.tensor([0.0, 0, 1] + [0] * 5)
    with SummaryWriter(str(logs / "broken weights")) as writer:
        add_attention(writer, "probe", broken_maps(), list("abcdefgh"), 0)
        add_attention(writer, "probe", maps, list("abcdefgh"), 1)
        add_attention(writer, "probe", causal_maps(2, n=8), list("abcdefgh"), 2)
    tab = open_tab(run="broken weights", step=1, layer=1, head=0, token=3)
    lines = [*csv.DictReader(io.StringIO(tab.saved("CSV").decode()))]
    cells = {(int(line["query"]), int(line["key"])): line["weight"] for line in lines}
    assert {at for at, text in cells.items() if text == "NaN"} == {(3, key) for key in range(4)}
    assert cells[2, 0] == cells[2, 1] == "0" and cells[2, 2] == "1"
    assert tab[".lists .to li >> nth=0"].inner_text() == "4 not finite"
    assert "0.000" not in tab[".lists .to >> nth=0"].inner_text()
    box = tab["canvas.picture >> nth=0"].bounding_box()
    assert box
    unit = (box["width"] - 7 - 8 - 8) / 8  # labels have one character
    at = {"x": box["width"] - 7 - 7.5 * unit, "y": box["height"] - 7 - 4.5 * unit}
    tab["canvas.picture >> nth=0"].hover(position=at)  # type: ignore[arg-type]
    assert tab[".readout >> nth=0"].inner_text() == "3 d → 0 a: not finite"
    # A single weight is found by the sum of its row.
    tab["input[type=range] >> nth=0"].fill("0")
    tab.shown(["broken weights", "probe", 0])
    lines = [*csv.DictReader(io.StringIO(tab.saved("CSV").decode()))]
    assert [(line["query"], line["key"]) for line in lines if line["weight"] == "NaN"] == [
        ("3", "1")
    ]


# Whether a line from corner to corner is drawn over a map: two of its cells, before and after.
CROSSED = """canvas => { const { width, height } = canvas;
    const { data } = canvas.getContext("2d").getImageData(width * 0.9, 0, width * 0.1, height);
    const found = new Set();
    for (let i = 0; i < data.length; i += 4) found.add(data.slice(i, i + 3).join());
    return [...found]; }"""


def test_maps_that_are_not_finite_are_crossed_out(logs: Path, open_tab: Callable[..., Tab]) -> None:
    with SummaryWriter(str(logs / "crossed")) as writer:
        maps = broken_maps()
        maps[1][0, 0] = torch.nan
        add_attention(writer, "probe", maps, list("abcdefgh"), 0)
        add_attention(writer, "probe", causal_maps(2, n=8), list("abcdefgh"), 2)
    tab = open_tab(run="crossed", step=0, layer=1, head=0, token=-1)
    cross = tab["main"].evaluate(
        "() => getComputedStyle(document.documentElement).getPropertyValue('--from').trim()"
    )
    wanted = ",".join(str(int(cross[i : i + 2], 16)) for i in (1, 3, 5))
    assert wanted in tab["canvas.picture >> nth=0"].evaluate(CROSSED)
    tab[".head >> nth=3"].click()
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L1H1")
    assert wanted not in tab["canvas.picture >> nth=0"].evaluate(CROSSED)
    tab = open_tab(run="crossed", step=2, run2="crossed", step2=0, layer=1, head=0, difference=1)
    panel = tab[".panel.difference"]
    assert wanted in panel.locator("canvas").evaluate(CROSSED)
    assert "not finite (NaN)" in panel.locator(".note").inner_text()
    assert "not finite" not in tab[".panel .note >> nth=0"].inner_text(), "the first one is"
    lines = [*csv.DictReader(io.StringIO(tab.saved("CSV", ".panel.difference").decode()))]
    assert (
        {line["difference"] for line in lines}
        == {line["compared_with"] for line in lines}
        == {"NaN"}
    )
    assert "NaN" not in {line["weight"] for line in lines}


def test_a_server_that_is_gone(browser: sync_api.Browser, tmp_path: Path) -> None:
    """The tab says so; the slider, the heading and the maps stay those of the last view."""
    log(tmp_path / "run", *range(10))
    with serve("--logdir", str(tmp_path)) as (url, process):
        tab = Tab(browser, f"{url}#attention")
        assert tab.shown() == [["run", "probe", 9]]
        process.kill()
        process.wait()
        tab["input[type=range] >> nth=0"].fill("2")
        notice = tab[".notice"]
        sync_api.expect(notice).to_have_text("TensorBoard does not answer. Is it still running?")
        assert tab[".stepper output >> nth=0"].inner_text() == "9 (10 of 10)"
        assert tab["input[type=range] >> nth=0"].input_value() == "9"
        assert tab.shown() == [["run", "probe", 9]]
        tab[".head >> nth=1"].click()
        sync_api.expect(tab[".panel:not([hidden]) h2 >> nth=0"]).to_have_text("L0H1")
        assert "does not answer" in notice.inner_text()
        tab.page.clock.run_for(10_000)
        assert "does not answer" in notice.inner_text()
        port = url.rstrip("/").rsplit(":", 1)[1]
        with serve("--logdir", str(tmp_path), "--port", port):
            tab.page.clock.run_for(10_000)
            sync_api.expect(notice).to_have_text("")
            tab["input[type=range] >> nth=0"].fill("2")
            tab.shown(["run", "probe", 2])
        tab.close()


def test_a_server_that_is_gone_is_noticed_without_a_click(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    log(tmp_path / "run", 0)
    with serve("--logdir", str(tmp_path)) as (url, process):
        tab = Tab(browser, f"{url}#attention")
        process.kill()
        process.wait()
        tab.page.clock.run_for(10_000)
        sync_api.expect(tab[".notice"]).to_contain_text("TensorBoard does not answer")
        tab.close()


def test_a_step_that_cannot_be_shown_hides_the_old_maps(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    log(logs / "two steps", 0, 1)
    tab = open_tab(run="two steps")
    tab.page.route("**/maps?run=two*step=0", lambda route: route.fulfill(status=404))
    tab.page.reload()
    tab.shown(["two steps", "probe", 1])
    tab["input[type=range] >> nth=0"].fill("0")
    sync_api.expect(tab[".notice"]).to_have_text("These maps are no longer in the log.")
    sync_api.expect(tab["canvas.picture >> nth=0"]).to_be_hidden()
    tab["input[type=range] >> nth=0"].fill("1")
    sync_api.expect(tab["canvas.picture:visible"]).to_have_count(1)
