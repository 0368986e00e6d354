"""The Attention tab shows what a run's model computes."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from data.corpora import open_corpus
from data.tokens import prepare
from inference.corpus import corpus_of
from inference.opening import open_run
from model import record_attention
from tensorboard_attention import encode
from tensorboard_attention.plugin import AttentionPlugin
from tensorboard_attention.scores import RULES


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
    data = corpus_of(opened.run)
    assert data is not None
    dataset = prepare(open_corpus(data), tokenizer, str(tiny / ".cache"), 1, ("val",))
    ids = dataset.val[: model.config.context_length].tolist()
    with torch.no_grad(), record_attention(model) as maps:
        model(torch.tensor(ids)[None])
    tokens = [tokenizer.decode_bytes([each]).decode(errors="backslashreplace") for each in ids]
    assert header["tokens"] == tokens and set(header["meanings"]) == set(header["scores"])
    repeated = "tokens of the validation text, repeated"
    places = {"copy": "4 tales", "induction": repeated, "wiring": repeated}
    assert {*header["measured"]} == {*header["scores"], "wiring"}
    assert places.items() <= header["measured"].items()
    check_sentences(header)
    difference = unpacked(packed).astype(int) - unpacked(encode(maps, tokens)[1])
    assert np.abs(difference).max() <= 1


def check_sentences(header: dict[str, Any]) -> list[str]:
    """Their numbers are the scores of the heads, and their examples are in the text."""
    assert [*map(len, header["sentences"])] == header["heads"]
    found = []
    for layer, heads in enumerate(header["sentences"]):
        for head, (text, example, _) in enumerate(heads):
            for name in [each.score for each in RULES if each.phrase in text.lower()]:
                value = header["scores"][name][layer][head]
                assert f": {value:.2f} of its attention" in text
                assert f", on {header['measured'][name]} (" in text
            if example:
                assert all(header["tokens"][each].strip() in text for each in example)
            found.append(text)
    return found


def unpacked(maps: bytes) -> np.ndarray:
    return np.frombuffer(zlib.decompress(maps), np.uint8)
