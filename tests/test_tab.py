"""The Attention tab shows what a run's model computes, in the same colours as the images."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright import sync_api
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from data import open_corpus, prepare
from inference import open_run
from model import record_attention
from observe.figures import colours
from tensorboard_attention import encode
from tensorboard_attention.export import STATIC
from tensorboard_attention.plugin import AttentionPlugin
from tensorboard_attention.tests.conftest import CHROMIUM, FLAGS


def test_a_run_logs_the_attention_of_its_model(tiny: Path, tiny_run: Path) -> None:
    """The maps logged with the last checkpoint are its model's, for the start of the val split."""
    plugin = AttentionPlugin(TBContext(logdir=str(tiny_run)))
    assert plugin.is_active()
    client = Client(plugin.get_plugin_apps()["/maps"])
    logged = client.get(query_string={"run": ".", "tag": "attention", "step": "6"}).data
    (length,) = struct.unpack("<I", logged[:4])
    header, packed = json.loads(logged[4 : 4 + length]), logged[4 + length :]
    opened = open_run(tiny_run, "last")
    tokenizer, model = opened.tokenizer, opened.model
    assert opened.config.data is not None
    dataset = prepare(open_corpus(opened.config.data), tokenizer, str(tiny / ".cache"), 1, ("val",))
    ids = dataset.val[: model.config.context_length].tolist()
    with torch.no_grad(), record_attention(model) as maps:
        model(torch.tensor(ids)[None])
    tokens = [tokenizer.decode_bytes([each]).decode(errors="backslashreplace") for each in ids]
    assert header["tokens"] == tokens and set(header["meanings"]) == set(header["scores"])
    places = {"copy": "4 tales", "induction": "random tokens, repeated"}
    assert {*header["measured"]} == {*header["scores"]} and places.items() <= header[
        "measured"
    ].items()
    assert [*map(len, header["sentences"])] == header["heads"]
    difference = unpacked(packed).astype(int) - unpacked(encode(maps, tokens)[1])
    assert np.abs(difference).max() <= 1


def unpacked(maps: bytes) -> np.ndarray:
    return np.frombuffer(zlib.decompress(maps), np.uint8)


@pytest.fixture
def browser() -> Iterator[sync_api.Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


def test_images_use_the_colours_of_the_tab(browser: sync_api.Browser) -> None:
    module = base64.b64encode((STATIC / "colours.js").read_bytes()).decode()
    pixels = browser.new_page().evaluate(
        "module => import(module).then(({ scale }) => [...scale(false)])",
        f"data:text/javascript;base64,{module}",
    )
    tab = np.array(pixels, dtype="<u4").view(np.uint8).reshape(-1, 4)[:, :3]
    assert np.abs(colours(np.linspace(0, 1, 256)).astype(int) - tab).max() <= 1
