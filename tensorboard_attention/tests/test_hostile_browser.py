"""The tab says what it does not show, and stops inflating maps that are not what they should be."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
import torch
from playwright import sync_api

from tensorboard_attention import encode
from tensorboard_attention.tests.conftest import HOSTILE, OpenTab
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
