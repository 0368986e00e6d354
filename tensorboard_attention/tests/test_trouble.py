"""Heads that are not finite, steps that cannot be shown, servers that are gone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention
from tensorboard_attention.tests.conftest import OpenTab, Tab, causal_maps, log, serve

pytestmark = pytest.mark.long


def broken_maps() -> list[torch.Tensor]:
    maps = causal_maps(0, n=8)
    maps[1][0, 0, 3, 1] = torch.nan
    return maps


def test_weights_that_are_not_finite_are_not_zeros(logs: Path, open_tab: OpenTab) -> None:
    """In files and lists, those of row 3 are unknown; the zeros of other rows are 0."""
    maps = broken_maps()
    maps[1][0, 0, 3] = torch.nan
    maps[1][0, 0, 2] = torch.tensor([0.0, 0, 1] + [0] * 5)
    with SummaryWriter(str(logs / "broken weights")) as writer:
        add_attention(writer, "probe", broken_maps(), list("abcdefgh"), 0)
        add_attention(writer, "probe", maps, list("abcdefgh"), 1)
        add_attention(writer, "probe", causal_maps(2, n=8), list("abcdefgh"), 2)
    tab = open_tab(run="broken weights", step=1, layer=1, head=0, token=3)
    lines = tab.table()
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
    lines = tab.table()
    assert [(line["query"], line["key"]) for line in lines if line["weight"] == "NaN"] == [
        ("3", "1")
    ]


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
