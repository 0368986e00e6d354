"""Opening runs: what is read of them, and what is refused."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from common.errors import UserError
from data.floor import floor_of
from data.tales import TalesConfig
from inference.opening import open_run
from launch.schema import preset
from tensorboard_attention.naming import UNMEASURED
from tests.conftest import configure, files, last_checkpoint


def test_an_open_run_has_the_model_of_its_checkpoint_and_writes_nothing(tiny_run: Path) -> None:
    before = files(tiny_run)
    opened = open_run(tiny_run, "last")
    assert files(tiny_run) == before
    assert opened.step == 6 and opened.run.path.resolve() == tiny_run.resolve()
    assert isinstance(opened.corpus(), TalesConfig) and not opened.model.training
    assert opened.config.model == opened.model.config
    assert opened.tokenizer.vocab_size == opened.model.vocab_size
    weights = load_file(last_checkpoint(tiny_run) / "model.safetensors")
    for name, parameter in opened.model.named_parameters():
        assert torch.equal(parameter, weights[name])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
def test_an_open_run_can_be_copied_and_pickled(tiny_run: Path, copied: Any) -> None:
    run = open_run(tiny_run)
    other = copied(run)
    assert other.sample("a", 5) == run.sample("a", 5) and other.run.path == run.run.path
    assert other.model is not run.model


def test_names_are_those_of_this_model(run: Path) -> None:
    opened, file = open_run(run, "last"), run / "evidence.json"
    evidence = json.loads(file.read_text())
    del evidence["heads"][[*evidence["heads"]][-1]]
    file.write_text(json.dumps(evidence))
    names = opened.head_names()
    assert names is not None and {each for layer in names for each in layer} == {UNMEASURED}


def test_other_settings_than_those_of_the_model_do_not_prevent_opening(run: Path) -> None:
    configure(run, lambda settings: settings["model"].update(norm_eps="1e-5"))  # text in YAML 1.1
    configure(run, lambda settings: settings.update(later={"setting": 1}, data={"name": "novels"}))
    opened = open_run(run, "last")
    assert opened.config.model.norm_eps == 1e-5
    with pytest.raises(UserError, match=r"config\.yaml: data\.name: .novels. is unknown"):
        opened.corpus()


def test_the_floor_of_a_text(run: Path) -> None:
    """A reading knows what can be known of it: of a run on tales, from its settings alone."""
    opened = open_run(run)
    for start in ("document", "text"):
        reading = opened.read("Once there", start)
        expected = floor_of(reading.tokens.tolist(), opened.tokenizer)
        assert np.array_equal(reading.floor.nats, expected.nats) and expected.unknown == ""
        assert reading.floor.next_tokens == expected.next_tokens
    floor = opened.read("Once there was no tale").floor
    assert np.isnan(floor.nats[-1]) and floor.unknown == "text: is no tale, from ' no' on"
    for data, why in (
        (asdict(preset("data", "shakespeare")), "was not trained on tales"),
        (None, "whose grammar"),
        ("novels", "data.name"),
    ):
        configure(run, lambda settings: settings.update(data=data))  # noqa: B023
        floor = open_run(run).read("Once there").floor
        assert np.isnan(floor.nats).all() and why in floor.unknown
        assert floor.next_tokens == [{}] * len(floor.nats)
