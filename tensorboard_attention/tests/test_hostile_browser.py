"""The tab says what it does not show, and stops inflating maps that are not what they should be."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import encode
from tensorboard_attention.summary import attention_summary
from tensorboard_attention.tests.conftest import HOSTILE, Tab

pytestmark = pytest.mark.long

MAPS = [torch.eye(3)[None, None]]
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


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """One megabyte that inflates to a gigabyte."""
    packer, zeros = zlib.compressobj(), bytes(2**24)
    return b"".join(packer.compress(zeros) for _ in range(64)) + packer.flush()


def log(folder: Path, *steps: list[bytes]) -> None:
    """A step for each header and maps."""
    writer = SummaryWriter(str(folder))
    for step, strings in enumerate(steps):
        logged = attention_summary("probe", MAPS, list("abc"))
        logged.value[0].tensor.string_val[:] = strings
        writer._get_file_writer().add_summary(logged, step)
    writer.close()


def test_maps_that_inflate_to_too_much(
    site: dict[str, str],
    address: tuple[str, Path],
    open_tab: Callable[..., Tab],
    bomb: bytes,
) -> None:
    good = encode(MAPS, list("abc"))
    large = json.loads(encode([torch.ones(1, 100, 1, 1)], ["a"])[0])
    large = json.dumps({**large, "tokens": ["a"] * 4_096, "causal": False}).encode()
    log(address[1] / "bomb", good, [good[0], bomb], [good[0], good[1][:-3]], [large, bomb], good)
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


def notes(tab: Tab) -> list[str]:
    return tab[".notes li"].all_text_contents()


def test_what_is_skipped_is_listed(
    site: dict[str, str], address: tuple[str, Path], open_tab: Callable[..., Tab]
) -> None:
    good = encode(MAPS, list("abc"))
    log(address[1] / HOSTILE.replace("/", "|"), good, [b"[" * 9_999, b""])
    tab = open_tab(run=HOSTILE.replace("/", "|"))
    assert tab.shown()[0][2] == 0
    (note,) = (text for text in notes(tab) if text.startswith(HOSTILE[:20]))
    assert note.endswith(
        "step 1 of 'probe' is skipped: its header is not what add_attention writes"
    )
    first = tab[".notes li"].first
    sync_api.expect(first).to_be_hidden()
    tab[".notes summary"].click()
    sync_api.expect(first).to_be_visible()
    assert tab["main img"].count() == tab["main script"].count() == 0
