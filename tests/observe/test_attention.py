"""The maps of a probe are those of the model, and are logged when they should be."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from model import GPT, ModelConfig, record_attention
from observe.attention import MAX_PROBE_TOKENS, AttentionMaps
from observe.heads import maps_of


def model(n_heads: int = 3) -> GPT:
    torch.manual_seed(0)
    return GPT(ModelConfig(2, n_heads, 12, 64, dropout=0.5, d_head=4), vocab_size=20)


def test_the_weights_are_those_of_the_model_without_dropout() -> None:
    gpt, probe = model().train(), torch.arange(7)[None]
    maps = maps_of(gpt, probe)
    assert gpt.training
    gpt.eval()
    with torch.no_grad(), record_attention(gpt) as expected:
        gpt(probe)
    for got, recorded in zip(maps, expected, strict=True):
        assert torch.equal(got, recorded)


def test_maps_and_images_are_logged_at_the_asked_steps(tmp_path: Path) -> None:
    writer = SummaryWriter(str(tmp_path))
    probe = [(token % 20, b"%d" % token) for token in range(60)]
    maps = AttentionMaps(writer, model(), probe, every=2, images_every=3, max_steps=9)
    maps.on_start(0)
    for step in range(1, 6):
        maps.on_step(step, None)
    writer.close()
    events = EventAccumulator(str(tmp_path), size_guidance={"images": 0}).Reload()
    assert events.Tags()["images"] == ["attention/layer 0", "attention/layer 1"]
    for tag in events.Tags()["images"]:
        assert [event.step for event in events.Images(tag)] == [0, 3]
    assert [event.step for event in events.Tensors("attention")] == [0, 2, 3, 4]
    assert len(maps.labels) == MAX_PROBE_TOKENS


@pytest.mark.parametrize(("images_every", "drawn"), [(0, []), (5, [0, 5, 6])])
def test_the_last_step_is_always_logged(
    tmp_path: Path, images_every: int, drawn: list[int]
) -> None:
    writer = SummaryWriter(str(tmp_path))
    probe = [(1, b"a"), (2, b"b")]
    maps = AttentionMaps(writer, model(), probe, 4, images_every, max_steps=6)
    maps.on_start(0)
    for step in range(1, 7):
        maps.on_step(step, None)
    writer.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    logged = {event.step for event in events.Tensors("attention")}
    assert logged == {0, 4, 6, *drawn}
    tags = events.Tags()["images"]
    assert [[event.step for event in events.Images(tag)] for tag in tags] == [drawn] * len(tags)
    assert len(tags) == (2 if drawn else 0)
