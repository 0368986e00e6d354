"""The drawn maps hold the recorded weights, with the right labels."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import PowerNorm
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from model import GPT, ModelConfig, record_attention
from observe.attention import (
    MAX_PROBE_TOKENS,
    AttentionMaps,
    HeadsFigure,
    attention_of,
    token_label,
)


def model(n_heads: int = 3) -> GPT:
    torch.manual_seed(0)
    return GPT(ModelConfig(2, n_heads, 12, 64, dropout=0.5, d_head=4), vocab_size=20)


def test_the_weights_are_those_of_the_model_without_dropout() -> None:
    gpt, probe = model().train(), torch.arange(7)
    maps = attention_of(gpt, probe)
    assert gpt.training
    gpt.eval()
    with torch.no_grad(), record_attention(gpt) as expected:
        gpt(probe[None])
    for got, recorded in zip(maps, expected, strict=True):
        assert torch.equal(got, recorded[0])


@pytest.mark.parametrize("n_heads", [1, 3, 4])
def test_every_weight_is_painted_in_its_cell(n_heads: int) -> None:
    """Reads the colours back from the pixels in the middle of every cell."""
    n = 6
    weights = np.random.default_rng(0).dirichlet(np.ones(n), size=(n_heads, n)).astype(np.float32)
    figure = HeadsFigure([f"t{i}" for i in range(n)], n_heads)
    first = figure.draw(np.zeros_like(weights))
    image = figure.draw(weights)
    assert image.shape == first.shape and image.dtype == np.uint8
    norm, colours = PowerNorm(0.5, 0, 1), matplotlib.colormaps["magma_r"]
    place = figure.axis.transData.transform
    height, width = figure.empty_maps[0].shape[:2]
    for head in range(n_heads):
        row, column = divmod(head, math.ceil(math.sqrt(n_heads)))
        for query in range(n):
            for key in range(n):
                x, y = place((key, query))
                top, left = row * height, column * width
                pixel = image[top + height - 1 - round(y), left + round(x)] / 255
                if key > query:
                    expected = (0.9, 0.9, 0.9)
                else:
                    expected = colours(norm(float(weights[head, query, key])))[:3]
                np.testing.assert_allclose(pixel, expected, atol=0.01)


def test_labels_stand_on_both_axes() -> None:
    labels = ["Once", "·upon", "⏎", r"$\no{", "$a$"]  # a dollar is a dollar, not mathematics
    axes = HeadsFigure(labels, 2).axis
    for axis in (axes.xaxis, axes.yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == labels


def test_every_head_has_its_number() -> None:
    figure = HeadsFigure(["a", "b"], 2)
    same = np.full((2, 2, 2), 0.5, np.float32)
    image, width = figure.draw(same), figure.empty_maps[0].shape[1]
    one, two = image[:, :width], image[:, width : 2 * width]
    differs = np.argwhere((one != two).any(-1))
    assert len(differs) > 5
    assert differs[:, 0].max() < 30  # in the line of the titles alone


@pytest.mark.parametrize(
    ("token", "label"),
    [
        (b" the", "·the"),
        (b"\n\n", "⏎⏎"),
        (b"\t", "⇥"),
        (b"\xe2\x82", r"\xe2\x82"),
        (b"\x00a", r"\x00a"),
        ("é".encode(), "é"),
        (b"incomprehensibly", "incomprehensi…"),
    ],
)
def test_token_labels(token: bytes, label: str) -> None:
    assert token_label(token) == label


def test_images_are_logged_at_the_asked_steps(tmp_path: Path) -> None:
    writer = SummaryWriter(str(tmp_path))
    probe = [(token % 20, b"%d" % token) for token in range(60)]
    maps = AttentionMaps(writer, model(), probe, every=2)
    maps.on_start(0)
    for step in range(1, 6):
        maps.on_step(step, None)
    writer.close()
    events = EventAccumulator(str(tmp_path), size_guidance={"images": 0}).Reload()
    assert events.Tags()["images"] == ["attention/layer 0", "attention/layer 1"]
    for tag in events.Tags()["images"]:
        assert [event.step for event in events.Images(tag)] == [0, 2, 4]
    assert len(maps.labels) == MAX_PROBE_TOKENS
