"""The Attention tab shows what a run's model computes."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import torch

from data.corpora import open_corpus
from data.tokens import prepare
from inference.opening import open_run
from model import record_attention
from store.results import open_log
from tensorboard_attention import encode


def test_a_run_logs_the_attention_of_its_model(tiny: Path, tiny_run: Path) -> None:
    """The maps logged with the last checkpoint are its model's, for the start of the val split."""
    header, packed = open_log(tiny_run).maps(".", "attention", 6)
    opened = open_run(tiny_run, "last")
    tokenizer, model = opened.tokenizer, opened.model
    data = opened.corpus()
    assert data is not None
    dataset = prepare(open_corpus(data), tokenizer, str(tiny / ".cache"), 1, ("val",))
    ids = dataset.val[: model.config.context_length].tolist()
    with torch.no_grad(), record_attention(model) as maps:
        model(torch.tensor(ids)[None])
    tokens = [tokenizer.decode_bytes([each]).decode(errors="backslashreplace") for each in ids]
    assert json.loads(header)["tokens"] == tokens
    difference = unpacked(packed).astype(int) - unpacked(encode(maps, tokens)[1])
    assert np.abs(difference).max() <= 1


def unpacked(maps: bytes) -> np.ndarray:
    return np.frombuffer(zlib.decompress(maps), np.uint8)
