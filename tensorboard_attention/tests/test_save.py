"""What the Attention tab saves: a map as a picture, and its weights as a table."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tensorboard_attention import encode
from tensorboard_attention.tests.conftest import HOSTILE, OpenTab, causal_maps, log, shown_byte


def test_a_saved_map_has_the_logged_weights(logs: Path, open_tab: OpenTab) -> None:
    """As colours of the picture: the palette's, for each cell, and the future's; and as numbers."""
    log(logs / "numbers", 0, tokens=list("abcdefgh"))
    tab = open_tab(run="numbers", layer=1, head=0, token=-1)
    weights = shown_byte(causal_maps(0, n=8)[1][0, 0].numpy())
    lines = tab.table()
    cells = {(int(line["query"]), int(line["key"])): float(line["weight"]) for line in lines}
    assert cells == {
        (query, key): pytest.approx(weights[query, key], abs=1e-5)
        for query in range(8)
        for key in range(query + 1)
    }
    code = """() => import(new URL("colours.js", document.baseURI)).then(
        ({ scale, future, css }) => [...scale(false), future(false)].map(css))"""
    palette = tab["main"].evaluate(code)
    colours = [tuple(map(int, re.findall(r"\d+", colour))) for colour in palette]
    picture = Image.open(io.BytesIO(tab.saved("PNG"))).convert("RGB")
    margin = 16  # of labels with one letter
    unit = (picture.width - margin - 7) / 8
    for query, key in np.ndindex(8, 8):
        at = [round(margin + (place + 0.5) * unit) for place in (key, query)]
        byte = 256 if key > query else round(np.sqrt(weights[query, key]) * 255)
        assert picture.getpixel((at[0], at[1])) == colours[byte]


def test_hostile_names_and_tokens_are_saved(open_page: OpenTab) -> None:
    tokens = [HOSTILE, "\x00\x1b", '"', "\ud800", "=1+1", "c,d", "line\n"]
    tab = open_page([("probe", 0, encode(causal_maps(0, 1, 1, 7), tokens))])
    lines = tab.table()
    assert [json.loads(line["key_token"]) for line in lines[-7:]] == tokens
    assert all(url.startswith("blob:") for url in tab.asked[1:])
