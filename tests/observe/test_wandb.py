"""Weights & Biases has of a run what TensorBoard has of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from store.run import Run
from tests.conftest import TINY, succeed

OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    """What wandb has written below `folder`, in order."""
    found = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        inspect = [sys.executable, "-m", "wandb", "leet", "inspect", str(file), "--json"]
        done = subprocess.run(inspect, capture_output=True, text=True, check=True)
        found += [json.loads(line) for line in done.stdout.splitlines()]
    return [each[kind] for each in found if each["type"] == kind]


def values(folder: Path, tag: str) -> list[tuple[int, Any]]:
    """By step."""
    rows = [each["item"] for each in records(folder, "history")]
    return [(row["global_step"], row[tag]) for row in rows if tag in row]


@pytest.mark.long
def test_a_run_and_its_continuation_are_one_run_with_the_values_of_tensorboard(
    tmp_path: Path,
) -> None:
    succeed("train", *TINY, "observe.wandb=true", "run_dir=runs/one", cwd=tmp_path, **OFFLINE)
    assert {path.name for path in tmp_path.iterdir()} == {"runs", ".cache", "wandb"}
    events = EventAccumulator(str(tmp_path / "runs/one")).Reload()
    tags = events.Tags()["scalars"]
    assert {"loss/bits_per_byte_train", "loss/bits_per_byte_val", "result/bpb"} <= {*tags}
    for tag in tags:
        expected = [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]
        assert values(tmp_path, tag) == expected, tag
    arguments, given = ("resume=runs/one", "trainer.max_steps=8"), {"WANDB_PROJECT": "mine"}
    succeed("train", *arguments, cwd=tmp_path, **OFFLINE, **given)
    first, second = records(tmp_path, "run")
    assert first["run_id"] == second["run_id"] and first["display_name"] == "one"
    assert (first["project"], second["project"]) == ("glassgpt", "mine")
    assert [step for step, _ in values(tmp_path, "loss/bits_per_byte_train")] == [2, 4, 6, 8]
    Run.open(str(tmp_path / "runs/one"), "run")  # which has no links
