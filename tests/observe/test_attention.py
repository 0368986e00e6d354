"""The drawn maps hold the recorded weights, with the right labels."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from model import GPT, record_attention
from observe.attention import (
    MAX_IMAGE_TOKENS,
    N_PROBE_TOKENS,
    AttentionConfig,
    AttentionMaps,
)
from observe.figures import HeadsFigure, colours, scale, token_label
from observe.heads import maps_of
from tests.conftest import small_config
from tests.observe.conftest import observed_run


def model(n_heads: int = 3) -> GPT:
    torch.manual_seed(0)
    return GPT(small_config(2, n_heads, 12, 64, dropout=0.5, d_head=4), vocab_size=256)


def test_the_weights_are_those_of_the_model_without_dropout() -> None:
    gpt, probe = model().train(), torch.arange(7)[None]
    maps = maps_of(gpt, probe)
    assert gpt.training
    gpt.eval()
    with torch.no_grad(), record_attention(gpt) as expected:
        gpt(probe)
    for got, recorded in zip(maps, expected, strict=True):
        assert torch.equal(got, recorded)


@pytest.mark.parametrize("n_heads", [1, 3, 4])
def test_every_weight_is_painted_in_its_cell(n_heads: int) -> None:
    """Reads the colours back from the pixels in the middle of every cell."""
    n = 6
    weights = np.random.default_rng(0).dirichlet(np.ones(n), size=(n_heads, n)).astype(np.float32)
    figure = HeadsFigure([f"t{i}" for i in range(n)], n_heads)
    first = figure.draw(np.zeros_like(weights))
    image = figure.draw(weights)
    assert image.shape == first.shape and image.dtype == np.uint8
    height, width = figure.empty_maps[0].shape[:2]
    for head in range(n_heads):
        row, column = divmod(head, math.ceil(math.sqrt(n_heads)))
        for query in range(n):
            for key in range(n):
                y = row * height + figure.top + query * figure.cell + figure.cell // 2
                x = column * width + figure.left + key * figure.cell + figure.cell // 2
                expected = colours(np.sqrt(weights[head, query, [key]]))[0]
                if key > query:
                    expected = np.full(3, 230)
                np.testing.assert_array_equal(image[y, x], expected)


def test_colours_fall_from_nearly_white_to_dark_in_even_steps() -> None:
    """Of CIE lightness (CIE 1976, for white of luminance 1), which OKLab's follows closely."""
    shown = colours(np.linspace(0, 1, 21)) / 255
    linear = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ (0.2126, 0.7152, 0.0722)) - 16
    assert lightness[0] > 95 and lightness[-1] < 20
    assert np.ptp(np.diff(lightness)) < 3 and np.all(np.diff(lightness) < -2)


def test_labels_stand_on_both_axes() -> None:
    """Where one label of three is dark, the others' places hold their own."""
    wide, narrow, empty = "MMMM", "i", " "
    figure = HeadsFigure([wide, narrow, empty], 1)
    ink = np.all(figure.empty_maps[0] < 128, axis=-1)
    columns = [figure.left + index * figure.cell for index in range(3)]
    rows = [figure.top + index * figure.cell for index in range(3)]
    beside = [ink[y : y + figure.cell, 20 : figure.left - 4].sum() for y in rows]
    bottom = figure.top + 3 * figure.cell + 5
    below = [ink[bottom:-20, x : x + figure.cell].sum() for x in columns]
    for first, second, third in (beside, below):
        assert first > 5 * second > 0 and third == 0
    # What the font lacks is told by its code, and a dollar is a dollar.
    assert HeadsFigure(["𒀀", r"$\no{"], 1).labels == ["U+12000", r"$\no{"]


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


def test_maps_and_images_are_logged_at_the_asked_steps(tmp_path: Path) -> None:
    observed = observed_run(tmp_path, model(), max_steps=9)
    maps = AttentionMaps(AttentionConfig(2, 3, "a text " * 9), observed)
    maps.on_start(0)
    for step in range(1, 6):
        maps.on_step(step, None)
    observed.events.close()
    events = EventAccumulator(str(tmp_path), size_guidance={"images": 0}).Reload()
    images = [tag for tag in events.Tags()["images"] if tag.startswith("attention")]
    assert images == ["attention/layer 0", "attention/layer 1"]
    for tag in images:
        assert [event.step for event in events.Images(tag)] == [0, 3]
    assert [event.step for event in events.Tensors("attention")] == [0, 2, 3, 4]
    assert len(maps.probe.labels) == MAX_IMAGE_TOKENS


@pytest.mark.parametrize(("images_every", "drawn"), [(0, []), (5, [0, 5, 6])])
def test_the_last_step_is_always_logged(
    tmp_path: Path, images_every: int, drawn: list[int]
) -> None:
    observed = observed_run(tmp_path, model(), max_steps=6)
    maps = AttentionMaps(AttentionConfig(4, images_every, "ab"), observed)
    maps.on_start(0)
    for step in range(1, 7):
        maps.on_step(step, None)
    observed.events.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    logged = {event.step for event in events.Tensors("attention")}
    assert logged == {0, 4, 6, *drawn}
    tags = events.Tags()["images"]
    assert [[event.step for event in events.Images(tag)] for tag in tags] == [drawn] * len(tags)
    assert bool(tags) == bool(drawn)


def test_the_default_probe_is_the_start_of_the_validation_split(tmp_path: Path) -> None:
    maps = AttentionMaps(AttentionConfig(4, 0, None), observed_run(tmp_path, model()))
    assert maps.probe.tokens[0].tolist() == list(range(N_PROBE_TOKENS))


@pytest.mark.parametrize("side", range(150, 300, 10))
def test_the_scale_is_told_in_full(side: int) -> None:
    """Nothing is cut off at the picture's edges, however short the maps and long the labels."""
    for longest in (8, 90):
        height = 18 + side + longest + 26
        picture = scale(height, 18, height - longest - 26)
        edges = (picture[0], picture[-1], picture[:, -1])
        assert all((edge == 255).all() for edge in edges)
