"""attention.py: any text, after training, beside what the run logged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import succeed


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(tiny_run, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def test_a_text_becomes_one_more_probe(run: Path) -> None:
    told = succeed("attention", "run=run", "text=Once there was a hen.", cwd=run.parent)
    assert "step 6" in told and "tensorboard --logdir ." in told
    events = EventAccumulator(str(run)).Reload()
    tag = "text: Once there was a hen."
    assert {f"{tag}/layer 0", f"{tag}/layer 1", "attention/layer 0"} <= {*events.Tags()["images"]}
    assert [each.step for each in events.Images(f"{tag}/layer 0")] == [6]
    assert {tag, "attention"} <= {*events.Tags()["tensors"]}
    # The curves of the run are as they were.
    assert events.Scalars("loss/train")[-1].step == 6


def test_a_text_that_is_too_long_is_cut_and_told(run: Path) -> None:
    told = succeed("attention", "run=run", "text=" + "a hen, " * 40, cwd=run.parent)
    assert "the first 32: the model reads no more" in told
