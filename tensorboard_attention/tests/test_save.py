"""Files that the Attention tab saves: pictures, weights and scores."""

from __future__ import annotations

import csv
import io
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention, attention_summary, encode
from tensorboard_attention.tests.conftest import HOSTILE, Tab, causal_maps, log, shown_byte
from tensorboard_attention.tests.events import HEADER

SVG = "{http://www.w3.org/2000/svg}"


def labels(text: str) -> tuple[list[str], list[str]]:
    """Of the rows and of the columns in a saved SVG."""
    texts = ElementTree.fromstring(text).findall(f".//{SVG}text")
    rows = [each.text or "" for each in texts if each.get("text-anchor") == "end"]
    columns = [each.text or "" for each in texts if "rotate" in each.get("transform", "")]
    return rows, columns


@pytest.mark.long
@pytest.mark.parametrize("exported", [False, True])
def test_a_saved_map_has_every_label(
    logs: Path, open_tab: Callable[..., Tab], open_page: Callable[..., Tab], exported: bool
) -> None:
    """In SVG that any XML parser reads, whatever the tokens are; and in a PNG of the same size."""
    tokens = [HOSTILE, "\x00\x1b", "a&b<c>", '"', " the", "\ud800", "\uffff", *map(str, range(93))]
    maps = causal_maps(0, 1, 1, 100)
    if exported:
        tab = open_page([("probe", 0, encode(maps, tokens))])
    else:
        log(logs / "labels & <more>", 0, tokens=[each.replace("\ud800", "?") for each in tokens])
        tab = open_tab(run="labels & <more>")
    text = tab.saved("SVG")
    rows, columns = labels(text)
    assert rows == columns and len(rows) == 100
    assert rows[1:5] == [r"\u{0}\u{1b}", "a&b<c>", '"', "·the"] and rows[-1] == "92"
    assert rows[5] == r"\u{d800}" if exported else "?"
    root = ElementTree.fromstring(text)
    sizes = {float(each.get("font-size", "0")) for each in root.iter(f"{SVG}text")}
    assert min(sizes) >= 12
    places = [each.get("transform", "") for each in root.iter(f"{SVG}text")]
    downs = [float(place.split()[1].split(")")[0]) for place in places]
    assert min(np.diff(downs[1:101])) >= 12, "no two labels overlap"
    data = tab.saved("PNG")
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width = int.from_bytes(data[16:20], "big")
    assert width in (round(float(root.get("width", "0"))) * each for each in (1, 2))
    if exported:
        assert all(url.startswith("blob:") for url in tab.asked[1:])


def test_a_saved_map_has_the_logged_weights(logs: Path, open_tab: Callable[..., Tab]) -> None:
    """As colours in the SVG: the palette's, for each cell, and the future's; and as numbers."""
    tokens = [" a", "=1+1", 'b"', "c,d", "line\n", "-", "@x", "t7"]
    log(logs / "numbers", 0, tokens=tokens)
    tab = open_tab(run="numbers", layer=1, head=0)
    weights = shown_byte(causal_maps(0, n=8)[1][0, 0].numpy())
    lines = [*csv.DictReader(io.StringIO(tab.saved("Weights")))]
    cells = {(int(line["query"]), int(line["key"])): float(line["weight"]) for line in lines}
    assert cells == {
        (query, key): pytest.approx(weights[query, key], abs=1e-5)
        for query in range(8)
        for key in range(query + 1)
    }
    assert [json.loads(line["key_token"]) for line in lines[-8:]] == tokens
    text = tab.saved("SVG")
    code = """() => import(new URL("colours.js", document.baseURI)).then(
        ({ scale, future, css }) => [...scale(false), future(false)].map(css))"""
    palette = tab["main"].evaluate(code)
    fills: dict[tuple[int, int], str] = {}
    for path in ElementTree.fromstring(text).iter(f"{SVG}path"):
        for key, query, length in re.findall(r"M(\d+) (\d+)h(\d+)v1", path.get("d", "")):
            for at in range(int(length)):
                assert (int(query), int(key) + at) not in fills
                fills[int(query), int(key) + at] = path.get("fill", "")
    for (query, key), fill in fills.items():
        byte = 256 if key > query else round(np.sqrt(weights[query, key]) * 255)
        assert fill == palette[byte]
    assert len(fills) == 64


def test_saved_scores(logs: Path, open_tab: Callable[..., Tab]) -> None:
    writer = SummaryWriter(str(logs / "=scored"))
    mine = {
        "=cmd()": [torch.tensor([0.5, -0.25])] * 2,
        "mine": [torch.tensor([1.0, torch.nan])] * 2,
    }
    add_attention(writer, "probe", causal_maps(0, n=8), list("abcdefgh"), 3, mine)
    writer.close()
    text = open_tab(run="=scored").saved("Scores")
    lines = [*csv.DictReader(io.StringIO(text))]
    heads = [(int(line["layer"]), int(line["head"])) for line in lines]
    assert heads == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [line["'=cmd()"] for line in lines] == ["0.5", "-0.25"] * 2
    assert [line["mine"] for line in lines] == ["1", ""] * 2
    assert {(line["run"], line["probe"], line["step"]) for line in lines} == {
        ("'=scored", "probe", "3")
    }


@pytest.mark.long
def test_a_png_that_is_too_large_is_refused(
    site: dict[str, str], open_tab: Callable[..., Tab], logs: Path
) -> None:
    scores = {"entropy": [[0.0]]}
    given = {"tokens": ["x"] * 1200, "heads": [1], "scores": scores}
    header = HEADER | given | {"sentences": [[["", None, 0]]], "roles": [[["", ""]]]}
    writer = SummaryWriter(str(logs / "huge"))
    logged = attention_summary("probe", [torch.eye(3)[None, None]], list("abc"))
    logged.value[0].tensor.string_val[:] = [
        json.dumps(header).encode(),
        zlib.compress(bytes(1200 * 1201 // 2)),
    ]
    writer._get_file_writer().add_summary(logged, 0)
    writer.close()
    tab = open_tab(run="huge")
    menu = tab[".save >> nth=0"]
    menu.locator("summary").click()
    menu.locator("button:has-text('PNG')").click()
    sync_api.expect(tab[".notice"]).to_contain_text("Save it as SVG")
    assert len(labels(tab.saved("SVG"))[0]) == 1200
