"""Distillation from the command line: `trainer.teacher=RUN`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import yaml

from exchange.weights import read_tensors
from inference import open_run
from inference.teacher import find_teacher, open_teacher
from tests.conftest import TINY, command, metrics, succeed
from training.distributed import Ranks


@pytest.fixture
def here(tiny: Path, tmp_path: Path) -> Path:
    """A folder with the run `runs/latest`."""
    return Path(shutil.copytree(tiny, tmp_path / "here", symlinks=True))


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_tensors(run / "checkpoints/last/model.safetensors")


def test_a_student_and_its_resume(here: Path, tmp_path: Path) -> None:
    (teacher,) = (str(each) for each in (here / "runs").iterdir() if each.name != "latest")
    settings = (*TINY, "trainer.log_every=1", "trainer.max_steps=4")
    succeed("train", *settings, "trainer.teacher=runs/latest", "run_dir=student", cwd=here)
    succeed("train", *settings, "run_dir=alone", cwd=here)
    stored = yaml.safe_load((here / "student/config.yaml").read_text())
    assert stored["trainer"]["teacher"] == teacher
    alone, student = (weights(here / name) for name in ("alone", "student"))
    assert all(not torch.equal(alone[name], student[name]) for name in alone)

    # From another folder; runs/latest is another run now.
    resumed = succeed("train", f"resume={here}/student", "trainer.max_steps=6", cwd=tmp_path)
    assert f"learning from {teacher}, step " in resumed
    terms = [row["distillation"] for row in metrics(here / "student") if "lr" in row]
    assert len(terms) == 6 and all(0 < term < 10 for term in terms)

    # A finished student needs its teacher no more.
    shutil.rmtree(teacher)
    assert "nothing to do" in succeed("train", "resume=student", cwd=here)
    refused = command("train", "resume=student", "trainer.max_steps=8", cwd=here)
    assert refused.returncode == 2 and "trainer.teacher" in refused.stderr


def test_one_teacher_for_all_students_of_a_sweep(here: Path) -> None:
    (teacher,) = (str(each) for each in (here / "runs").iterdir() if each.name != "latest")
    weights = "trainer.distillation=0,0.5,1"
    settings = (*TINY, "-m", "trainer.teacher=runs/latest", weights, "hydra.sweep.dir=students")
    said = succeed("train", *settings, cwd=here)
    assert said.count(f"learning from {teacher}") == 2  # a weight of 0 needs no teacher


def test_the_runs_of_a_sweep_teach_together(here: Path) -> None:
    succeed("train", *TINY, "-m", "seed=1,2", "hydra.sweep.dir=sweep", cwd=here)
    opened = [open_run(run, "last") for run in sorted((here / "sweep").glob("*/"))]
    length = opened[0].config.model.context_length
    found = find_teacher(str(here / "sweep"))
    teacher = open_teacher(found, opened[0].tokenizer, length, Ranks())
    assert teacher is not None
    tokens = torch.randint(opened[0].tokenizer.vocab_size, (2, length))
    one, other = (each.model(tokens).softmax(-1) for each in opened)
    torch.testing.assert_close(teacher(tokens), (one + other) / 2)
    assert not teacher(tokens).requires_grad


def test_what_is_refused(here: Path) -> None:
    length = open_run(here / "runs/latest").config.model.context_length
    for settings, words in (
        (("trainer.teacher=nowhere",), "trainer.teacher: nowhere is neither"),
        (("trainer.teacher=runs",), "runs is neither"),  # it may hold any runs
        (("trainer.teacher=runs/latest", "tokenizer.vocab_size=290"), "another tokenizer"),
        (
            ("trainer.teacher=runs/latest", f"model.context_length={length + 1}"),
            f"set model.context_length={length}",
        ),
    ):
        done = command("train", *TINY, *settings, "run_dir=new", cwd=here)
        assert done.returncode == 2 and words in done.stderr, done.stderr
        assert not (here / "new").exists()
