"""The tab says what it does not show: weights, steps, parts of a log, and all of it without a
server."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
import torch
from playwright import sync_api

from tensorboard_attention import encode
from tensorboard_attention.tests.conftest import HOSTILE, OpenTab, causal_maps, log, serve
from tensorboard_attention.tests.events import HEADER, LOGGED, event, write

pytestmark = pytest.mark.long

DAMAGED = "The maps of this step are damaged: they do not fit their header."
# How many bytes the page has inflated. Streams of the browser's own are not counted.
COUNT = """() => {
    window.inflated = 0;
    const { read } = ReadableStreamDefaultReader.prototype;
    ReadableStreamDefaultReader.prototype.read = async function () {
        const found = await read.call(this);
        window.inflated += found.value?.length ?? 0;
        return found;
    };
}"""


def test_weights_that_are_not_finite_are_not_zeros(logs: Path, open_tab: OpenTab) -> None:
    """In files and lists, those of row 3 are unknown; the zeros of other rows are 0."""
    maps, worse = causal_maps(0, n=8), causal_maps(0, n=8)
    maps[1][0, 0, 3, 1] = torch.nan
    worse[1][0, 0, 3] = torch.nan
    worse[1][0, 0, 2] = torch.tensor([0.0, 0, 1] + [0] * 5)
    log(logs / "broken weights", 0, tokens="abcdefgh", maps=maps)
    log(logs / "broken weights", 1, tokens="abcdefgh", maps=worse)
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
    broken = [line for line in tab.table() if line["weight"] == "NaN"]
    assert [(line["query"], line["key"]) for line in broken] == [("3", "1")]


def test_maps_that_inflate_to_too_much(logs: Path, open_tab: OpenTab) -> None:
    packer, zeros = zlib.compressobj(), bytes(2**24)
    bomb = b"".join(packer.compress(zeros) for _ in range(64)) + packer.flush()  # 1 MB, of 1 GB
    large = json.loads(encode([torch.ones(1, 100, 1, 1)], ["a"])[0])
    large |= {"tokens": ["a"] * 4_096, "causal": False}
    maps = [LOGGED[1], bomb, LOGGED[1][:-3], bomb, LOGGED[1]]
    headers = [HEADER, HEADER, HEADER, large, HEADER]
    steps = zip(range(5), headers, maps, strict=True)
    write(logs / "bomb", *(event(step, header, maps=data) for step, header, data in steps))
    tab = open_tab(run="bomb")
    assert tab.shown() == [["bomb", "probe", 4]]
    tab["main"].evaluate(COUNT)
    slider, notice = tab["input[type=range] >> nth=0"], tab[".notice"]
    for step, text in [
        ("1", DAMAGED),
        ("3", "The maps of this step are too large: 100 heads with 4096 tokens."),
        ("2", DAMAGED),
    ]:
        slider.fill(step)
        sync_api.expect(notice).to_have_text(text)
    assert 0 < tab["main"].evaluate("() => inflated") < 64e6
    slider.fill("0")
    tab.shown(["bomb", "probe", 0])
    assert notice.inner_text() == ""


def test_what_is_skipped_is_listed(logs: Path, open_tab: OpenTab) -> None:
    name = HOSTILE.replace("/", "|")
    write(logs / name, event(0), event(1, b"[" * 9_999))
    tab = open_tab(run=name)
    assert tab.shown()[0][2] == 0
    (note,) = (
        text for text in tab[".notes li"].all_text_contents() if text.startswith(HOSTILE[:20])
    )
    assert note.endswith(
        "step 1 of 'probe' is skipped: its header is not what add_attention writes"
    )
    first = tab[".notes li"].first
    sync_api.expect(first).to_be_hidden()
    tab[".notes summary"].click()
    sync_api.expect(first).to_be_visible()
    assert tab["main img"].count() == tab["main script"].count() == 0


def test_a_server_that_is_gone(opened: OpenTab, tmp_path: Path) -> None:
    """The tab says so; the slider, the heading and the maps stay those of the last view."""
    log(tmp_path / "run", *range(10))
    with serve("--logdir", str(tmp_path)) as (url, process):
        tab = opened(f"{url}#attention", frame=True)
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
