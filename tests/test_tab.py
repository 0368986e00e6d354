"""The Attention tab shows what a run's model computes."""

from __future__ import annotations

import json
import struct
import zlib
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from data.corpora import open_corpus
from data.tokens import prepare
from inference.corpus import corpus_of
from inference.opening import open_run
from model import record_attention
from observe.heads import HeadNames, documents_of, spell
from tensorboard_attention import encode
from tensorboard_attention.plugin import AttentionPlugin

FIELDS = ("roles", "sentences", "details")


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
    documents = documents_of(model, dataset)
    measured = HeadNames(model, spell(tokenizer, model.vocab_size), documents).measure([])
    said = zip(chain(*measured.names), *(chain(*header[name]) for name in FIELDS), strict=True)
    for name, role, (headline, _, interest), details in said:
        assert list(name) == [*role, headline, details, interest]
    for name, layers in measured.scores.items():
        np.testing.assert_allclose(np.array(header["scores"][name], float), layers, atol=1e-5)
        assert header["counts"][name] == measured.counts[name]
        assert header["measured"][name] == documents.where
    difference = unpacked(packed).astype(int) - unpacked(encode(maps, tokens)[1])
    assert np.abs(difference).max() <= 1


def unpacked(maps: bytes) -> np.ndarray:
    return np.frombuffer(zlib.decompress(maps), np.uint8)
