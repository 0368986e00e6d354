"""Opening runs: what is read of them, and what is refused."""

from __future__ import annotations

import copy
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from common.errors import UserError
from data.tales import TalesConfig
from inference.corpus import corpus_of
from inference.opening import open_run
from tests.conftest import files, last_checkpoint


def test_an_open_run_has_the_model_of_its_checkpoint(tiny_run: Path) -> None:
    opened = open_run(tiny_run, "last")
    assert opened.step == 6 and opened.run.path.resolve() == tiny_run.resolve()
    assert isinstance(corpus_of(opened.run), TalesConfig) and not opened.model.training
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


def test_opening_a_run_writes_nothing(tiny_run: Path) -> None:
    before = files(tiny_run)
    open_run(tiny_run, "best")
    assert files(tiny_run) == before


def changed(run: Path, folder: Path, name: str, value: object) -> Path:
    """A copy of the run with another value of one setting."""
    copy = folder / "run"
    shutil.copytree(run, copy, symlinks=True)
    settings = yaml.safe_load((copy / "config.yaml").read_text())
    *parents, key = name.split(".")
    section = settings
    for parent in parents:
        section = section[parent]
    section[key] = value
    (copy / "config.yaml").write_text(yaml.safe_dump(settings))
    return copy


def test_a_setting_that_is_wrong_is_named_with_its_file(tiny_run: Path, tmp_path: Path) -> None:
    run = changed(tiny_run, tmp_path, "data.name", "novels")
    with pytest.raises(UserError, match=r"config\.yaml: data\.name: .novels. is unknown"):
        corpus_of(open_run(run, "last").run)


def test_a_number_written_by_hand_and_foreign_settings_are_accepted(
    tiny_run: Path, tmp_path: Path
) -> None:
    run = changed(tiny_run, tmp_path, "model.norm_eps", "1e-5")  # text in YAML 1.1
    (run / "config.yaml").write_text((run / "config.yaml").read_text() + "later: {setting: 1}\n")
    assert open_run(run, "last").config.model.norm_eps == 1e-5
