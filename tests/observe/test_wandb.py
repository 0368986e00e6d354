"""What a run logs to Weights & Biases is what TensorBoard and metrics.jsonl have of it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wandb
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from observe.measured import Measured
from observe.wandb import STEP, Wandb
from tests.conftest import TINY, command, metrics, succeed
from tests.observe.conftest import run_context, trainer_at
from training.callback import StepMetrics
from training.run import Run

OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}


def records(folder: Path) -> list[dict[str, Any]]:
    """What wandb has written below `folder`, in order."""
    found = []
    for file in sorted(folder.glob("wandb/*/*.wandb")):
        inspect = [sys.executable, "-m", "wandb", "leet", "inspect", str(file), "--json"]
        done = subprocess.run(inspect, capture_output=True, text=True, check=True)
        found += [json.loads(line) for line in done.stdout.splitlines()]
    return found


def rows(folder: Path) -> list[dict[str, Any]]:
    return [each["history"]["item"] for each in records(folder) if each["type"] == "history"]


def runs(folder: Path) -> list[dict[str, Any]]:
    return [each["run"] for each in records(folder) if each["type"] == "run"]


def values(folder: Path, tag: str) -> list[tuple[int, Any]]:
    return [(row[STEP], row[tag]) for row in rows(folder) if tag in row]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("logged")
    succeed("train", *TINY, "observe.wandb=true", "run_dir=runs/one", cwd=folder, **OFFLINE)
    return folder / "runs/one"


@pytest.fixture(scope="module")
def events(logged: Path) -> EventAccumulator:
    return EventAccumulator(str(logged)).Reload()


def test_scalars_are_those_of_tensorboard_and_of_the_metrics_file(
    logged: Path, events: EventAccumulator
) -> None:
    tags = events.Tags()["scalars"]
    for tag in tags:
        expected = [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]
        assert values(logged, tag) == expected
    lines, names = metrics(logged), {"train_loss": "loss/train", "val_bpb": "loss_bpb/val"}
    for name, tag in names.items():
        assert values(logged, tag) == [(line["step"], line[name]) for line in lines if name in line]
    shown = {name for row in rows(logged) for name in row if not name.startswith("_")}
    media = {"sample", "page", "attention/layer 0", "attention/layer 1"}
    of_files = re.compile(r"\._?(type|format|height|width|path|sha256|size)$")
    assert {of_files.sub("", name) for name in shown} == {*tags, *media, STEP}
    assert [row["_step"] for row in rows(logged)] == [0, 2, 3, 4, 6]


def test_images_and_samples_are_those_of_tensorboard(
    logged: Path, events: EventAccumulator
) -> None:
    (files,) = logged.glob("wandb/*/files")
    for tag in ("attention/layer 0", "attention/layer 1"):
        for (step, path), event in zip(
            values(logged, f"{tag}.path"), events.Images(tag), strict=True
        ):
            expected = Image.open(io.BytesIO(event.encoded_image_string))
            assert step == event.step
            assert np.array_equal(np.asarray(Image.open(files / path)), np.asarray(expected))
    samples = values(logged, "sample.path")
    assert [step for step, _ in samples] == [3, 6]
    for (_, path), event in zip(samples, events.Tensors("sample/text_summary"), strict=True):
        text = unescape(re.sub("<[^>]*>", "", (files / path).read_text("utf-8")))
        shown = make_ndarray(event.tensor_proto).item().decode()
        assert re.sub(r"\s", "", text) == re.sub(r"\s", "", shown)


def test_the_page_has_the_weights_of_that_of_look(logged: Path, tmp_path: Path) -> None:
    ((step, path),) = values(logged, "page.path")
    (files,) = logged.glob("wandb/*/files")
    succeed("look", f"run={logged}", f"html={tmp_path / 'page.html'}", cwd=logged.parent.parent)
    ours, expected = ((file.read_text("utf-8")) for file in (files / path, tmp_path / "page.html"))
    weights = re.compile(r'id="weights-0"[^>]*>([^<]+)<')
    assert step == 6 and weights.findall(ours) == weights.findall(expected) != []
    assert "http-equiv" in ours


def test_a_resume_continues_the_same_run(logged: Path, tmp_path: Path) -> None:
    here = logged.parent.parent
    assert {path.name for path in here.iterdir()} == {"runs", ".cache"}
    Run.open(str(logged), "run")  # which refuses links
    arguments, given = (f"resume={logged}", "trainer.max_steps=8"), {"WANDB_PROJECT": "mine"}
    succeed("train", *arguments, cwd=here, **OFFLINE, **given)
    first, second = runs(logged)
    assert first["run_id"] == second["run_id"] and first["display_name"] == "one"
    assert (first["project"], second["project"]) == ("glassgpt", "mine")
    assert [step for step, _ in values(logged, "loss/train")] == [2, 4, 6, 8]
    Run.open(str(logged), "run")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For a run of wandb in this process, whose service those of later tests would share."""
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    yield
    wandb.teardown()


def test_repeated_steps_are_logged_again(tmp_path: Path, offline: None) -> None:
    observer = Wandb(context := run_context(tmp_path), Measured(context))
    assert observer.run
    observer.run.log({"earlier": 1}, step=25, commit=True)  # as of the process that was killed
    for step in (10, 20, 30):
        measured = StepMetrics(float(step), 0.7, 0.01, 1.0, 640, 3200.0)
        observer.on_metrics(trainer_at(context, step), measured)
    observer.on_end(trainer_at(context, 30))
    assert values(tmp_path, "loss/train") == [(10, 10), (20, 20), (30, 30)]


def test_the_runs_of_a_sweep_are_a_group_and_wandbs_settings_apply(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    given = {"WANDB_DIR": str(tmp_path / "elsewhere"), "WANDB_PROJECT": "mine"}
    arguments = ("-m", *TINY, "observe.wandb=true", "seed=1,2", "hydra.sweep.dir=runs/both")
    succeed("train", *arguments, "observe.tensorboard=false", cwd=tmp_path, **OFFLINE, **given)
    first, second = runs(tmp_path / "elsewhere")
    assert first["run_id"] != second["run_id"]
    assert first["project"] == second["project"] == "mine"
    assert first["run_group"] == second["run_group"] == "both"
    assert {first["display_name"], second["display_name"]} == {"0_seed=1", "1_seed=2"}
    assert [first["config"]["update"]["seed"], second["config"]["update"]["seed"]] == [1, 2]
    assert not [*tmp_path.glob("runs/both/*/wandb")] and values(tmp_path / "elsewhere", "page.path")


def test_without_a_connection_a_run_is_logged_offline(tmp_path: Path) -> None:
    nowhere = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "0" * 40}
    arguments = (*TINY, "observe.wandb=true", "run_dir=runs/one")
    environment = {**nowhere, "WANDB_MODE": "online", "WANDB_INIT_TIMEOUT": "6"}
    done = command("train", *arguments, cwd=tmp_path, **environment, WANDB_SILENT="true")
    assert done.returncode == 0
    assert "warning: observe.wandb: cannot start" in done.stderr and "wandb sync" in done.stderr
    assert [step for step, _ in values(tmp_path / "runs/one", "loss/train")] == [2, 4, 6]
    Run.open(str(tmp_path / "runs/one"), "run")


def test_a_run_that_wandb_refuses_is_not_logged(
    tmp_path: Path, offline: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wandb_id").write_text("a/b\n")
    observer = Wandb(context := run_context(tmp_path), Measured(context))
    assert "nothing more is logged" in capsys.readouterr().err
    measured = StepMetrics(2.0, 0.7, 0.01, 1.0, 640, 3200.0)
    observer.on_metrics(trainer_at(context, 10), measured)
    observer.on_end(trainer_at(context, 10))
    assert not [*tmp_path.glob("wandb/*/*.wandb")]


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
