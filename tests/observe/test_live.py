"""The weights for the live page: what is written, when, and what is removed."""

from __future__ import annotations

import base64
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from data.documents import Documents
from live.models import values_of
from live.pack import pack
from live.page import describe
from model import GPT, mean_outputs
from observe import live
from observe.attention import AttentionMaps
from observe.live import LiveWeights
from tensorboard_attention.following import steps
from tests.conftest import small_config
from tests.observe.conftest import run_context, trainer_at


def weights(folder: Path, *overrides: str, model: GPT | None = None) -> LiveWeights:
    context = run_context(folder, "observe.attention.every=1", *overrides, model=model)
    writer = SummaryWriter(str(folder))
    maps = AttentionMaps(context.config.observe.attention, context, writer)
    assert maps.heads
    return LiveWeights(context, maps, maps.heads)


def names(folder: Path) -> Any:
    return json.loads((folder / "live/names.json").read_text())


def run_to(observer: LiveWeights, first: int, last: int) -> None:
    for each in (observer.maps, observer):
        each.on_start(trainer_at(observer.context, first))
    for step in range(first + 1, last + 1):
        step_to(observer, step)


def step_to(observer: LiveWeights, step: int) -> None:
    for each in (observer.maps, observer):
        each.on_step(trainer_at(observer.context, step))


def test_the_weights_are_those_that_a_page_would_have(tmp_path: Path) -> None:
    observer = weights(tmp_path, "name=a hen")
    before = torch.get_rng_state()
    run_to(observer, 0, 1)
    assert torch.equal(before, torch.get_rng_state())
    model, tokenizer = observer.context.model, observer.context.dataset.tokenizer
    documents = Documents(observer.context.dataset, model.config.context_length)
    means = mean_outputs(model, documents.batches)
    text = pack(values_of(model, means), "float16")
    assert (tmp_path / "live/0.bin").read_bytes() == zlib.decompress(base64.b64decode(text))
    found = json.loads((tmp_path / "live/model.json").read_text())
    assert found == json.loads(json.dumps(describe(model, [], "float16", tokenizer, found["run"])))
    assert found["run"]["name"] == "a hen"
    assert found["run"]["means"] == documents.where


def test_names_are_those_of_the_maps(tmp_path: Path) -> None:
    observer = weights(tmp_path)
    run_to(observer, 0, 0)
    measured = observer.heads.measure([]).names
    first = names(tmp_path)
    assert first == {"0": [[list(head) for head in layer] for layer in measured]}
    step_to(observer, 1)
    observer.maps.probe.writer.flush()
    os.utime(tmp_path / "live/1.bin", (0, 0))
    observer.on_finish(trainer_at(observer.context, 1))
    assert (tmp_path / "live/1.bin").stat().st_mtime > 0, "a page that is open asks again"
    found = names(tmp_path)
    run_to(weights(tmp_path), 1, 2)
    assert names(tmp_path).items() >= found.items() >= first.items(), "after a resume"


def test_steps_are_those_of_the_maps(tmp_path: Path) -> None:
    observer = weights(tmp_path, "trainer.max_steps=7", "observe.attention.every=3")
    run_to(observer, 0, 7)
    assert [*steps(tmp_path)] == [0, 3, 6, 7]


def test_a_resume_removes_the_later_steps(tmp_path: Path) -> None:
    observer = weights(tmp_path)
    run_to(observer, 0, 5)
    run_to(observer, 3, 3)
    assert [*steps(tmp_path)] == [0, 1, 2, 3]
    run_to(observer, 3, 6)
    files = {path.name for path in (tmp_path / "live").iterdir()}
    assert files == {"model.json", "names.json", *(f"{step}.bin" for step in range(7))}


def test_where_room_is_short_every_other_step_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer = weights(tmp_path)
    monkeypatch.setattr(live, "MAX_BYTES", 5 * observer.size)
    run_to(observer, 0, 0)
    expected = [0]
    for step in range(1, 40):
        step_to(observer, step)
        expected.append(step)
        if len(expected) > 5:
            n = len(expected)
            expected = [each for i, each in enumerate(expected) if i == 0 or (n - i) % 2]
        assert [*steps(tmp_path)] == expected
    monkeypatch.setattr(live, "MAX_BYTES", 3 * observer.size // 2)
    run_to(observer, 40, 41)
    assert [*steps(tmp_path)] == [41]
    monkeypatch.setattr(live, "MAX_BYTES", observer.size - 1)
    other = weights(tmp_path / "large")
    run_to(other, 0, 2)
    assert not (tmp_path / "large/live").exists()


def test_weights_that_float16_cannot_hold_are_left_out(tmp_path: Path) -> None:
    model = GPT(small_config(1, 1, 4, 8), 256)
    observer = weights(tmp_path, model=model)
    run_to(observer, 0, 1)
    for step, gain in ((2, 1e5), (3, 1.0)):
        with torch.no_grad():
            model.get_parameter("final_norm.weight").fill_(gain)
        step_to(observer, step)
    assert [*steps(tmp_path)] == [0, 1, 3]
