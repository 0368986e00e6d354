"""Weights & Biases has of a run what TensorBoard has of it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import TINY, command, succeed
from training.run import Run

OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}


def records(folder: Path) -> list[dict[str, Any]]:
    """What wandb has written below `folder`, in order."""
    found = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        inspect = [sys.executable, "-m", "wandb", "leet", "inspect", str(file), "--json"]
        done = subprocess.run(inspect, capture_output=True, text=True, check=True)
        found += [json.loads(line) for line in done.stdout.splitlines()]
    return found


def rows(folder: Path) -> list[dict[str, Any]]:
    return [each["history"]["item"] for each in records(folder) if each["type"] == "history"]


def runs(folder: Path) -> list[dict[str, Any]]:
    return [each["run"] for each in records(folder) if each["type"] == "run"]


def values(found: list[dict[str, Any]], tag: str) -> list[tuple[int, Any]]:
    """By step, of what `rows` has found."""
    return [(row["global_step"], row[tag]) for row in found if tag in row]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a run was trained, in runs/one."""
    folder = tmp_path_factory.mktemp("logged")
    histograms = "observe.histograms.every=3"
    arguments = (*TINY, "observe.wandb=true", histograms, "run_dir=runs/one")
    succeed("train", *arguments, cwd=folder, **OFFLINE)
    return folder


def test_values_are_those_of_tensorboard(logged: Path) -> None:
    events = EventAccumulator(str(logged / "runs/one"), {"histograms": 0}).Reload()
    tags, found = events.Tags(), rows(logged)
    (files,) = logged.glob("wandb/offline-run-*/files")
    assert {"loss/train", "loss_bpb/val", "result/bpb"} <= {*tags["scalars"]}
    for tag in tags["scalars"]:
        expected = [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]
        assert values(found, tag) == expected, tag
    assert [*tags["images"]] == ["attention/layer 0", "attention/layer 1"]
    for tag in tags["images"]:
        for (step, (path,)), event in zip(
            values(found, f"{tag}.filenames"), events.Images(tag), strict=True
        ):
            expected_image = Image.open(io.BytesIO(event.encoded_image_string))
            assert step == event.step
            assert np.array_equal(np.asarray(Image.open(files / path)), np.asarray(expected_image))
    assert tags["histograms"]
    for tag in tags["histograms"]:
        steps = [event.step for event in events.Histograms(tag)]
        assert [step for step, _ in values(found, f"{tag}.bins")] == steps


def test_a_resume_continues_the_same_run(logged: Path) -> None:
    assert {path.name for path in logged.iterdir()} == {"runs", ".cache", "wandb"}
    arguments, given = ("resume=runs/one", "trainer.max_steps=8"), {"WANDB_PROJECT": "mine"}
    succeed("train", *arguments, cwd=logged, **OFFLINE, **given)
    first, second = runs(logged)
    assert first["run_id"] == second["run_id"] and first["display_name"] == "one"
    assert (first["project"], second["project"]) == ("glassgpt", "mine")
    assert [step for step, _ in values(rows(logged), "loss/train")] == [2, 4, 6, 8]
    Run.open(str(logged / "runs/one"), "run")  # which has no links


def test_the_runs_of_a_sweep_are_a_group_and_wandbs_settings_apply(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    given = {"WANDB_DIR": str(tmp_path / "elsewhere"), "WANDB_PROJECT": "mine"}
    arguments = ("-m", *TINY, "observe.wandb=true", "seed=1,2", "hydra.sweep.dir=runs/both")
    succeed("train", *arguments, cwd=tmp_path, **OFFLINE, **given)
    first, second = runs(tmp_path / "elsewhere")
    assert first["run_id"] != second["run_id"]
    assert first["project"] == second["project"] == "mine"
    assert first["run_group"] == second["run_group"] == "both"
    assert {first["display_name"], second["display_name"]} == {"0_seed=1", "1_seed=2"}
    assert [first["config"]["update"]["seed"], second["config"]["update"]["seed"]] == [1, 2]
    steps = [step for step, _ in values(rows(tmp_path / "elsewhere"), "loss/train")]
    assert steps == [2, 4, 6, 2, 4, 6]


def test_what_wandb_refuses_is_one_line(tmp_path: Path) -> None:
    given = {"WANDB_PROJECT": "a/b"}
    done = command("train", *TINY, "observe.wandb=true", cwd=tmp_path, **OFFLINE, **given)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("error: observe.wandb: ")


def test_without_the_library_a_line_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    done = command("train", *TINY, "observe.wandb=true", cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and not [*tmp_path.iterdir()]
    assert (
        line.startswith("error: observe.wandb: ")
        and 'pip install -c constraints.txt -e ".[wandb]"' in line
    )
