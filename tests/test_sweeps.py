"""Sweeps with Hydra's launchers: each run has its own folder and hyperparameters."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from store.comparison import compare, group, summary_lines, target_loss
from store.results import results
from store.settings import read_settings
from tests.conftest import PLAIN, command, last_checkpoint, refused, succeed


def runs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("summary.json"))


@pytest.mark.long
def test_two_parallel_jobs(tmp_path: Path) -> None:
    """Two runs in parallel with joblib give the same results as two sequential runs."""
    joblib = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    succeed("train", "-m", *joblib, *PLAIN, "seed=1,2", cwd=tmp_path, OMP_NUM_THREADS="1")
    for number, run in enumerate(runs(tmp_path), start=1):
        succeed("train", *PLAIN, f"seed={number}", f"run_dir=alone{number}", cwd=tmp_path)
        found, alone = (
            json.loads((folder / "summary.json").read_text())["val_bpb"]
            for folder in (run, tmp_path / f"alone{number}")
        )
        assert alone == pytest.approx(found, rel=1e-5)


@pytest.mark.long
def test_the_file_of_an_experiment_sweeps(tmp_path: Path) -> None:
    """As -m does: texts of the command line are divided, too, and names of folders are short."""
    (tmp_path / "mine/experiment").mkdir(parents=True)
    file = tmp_path / "mine/experiment/mine.yaml"
    file.write_text(
        "# @package _global_\nhydra: {mode: MULTIRUN, sweeper: {params: {seed: '1,2'}}}\n"
    )
    probes = (f"A hen/{'n' * 300}", "'A cat'")
    settings = (
        "experiment=mine",
        "--config-dir=mine",
        f"observe.attention.probe={','.join(probes)}",
    )
    succeed("train", *settings, *PLAIN, "hydra.sweep.dir=sweep", cwd=tmp_path)
    found = {run.name: read_settings(run / "config.yaml") for run in runs(tmp_path)}
    assert [*found] == ["0_seed=1", "1_seed=1", "2_seed=2", "3_seed=2"]
    shown = [values["observe"]["attention"]["probe"] for values in found.values()]
    assert shown == [*probes, *probes]
    again = succeed("train", *settings, *PLAIN, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert again.count("is finished: nothing to do") == 4


def test_a_trial_that_diverges_does_not_end_the_sweep(tmp_path: Path) -> None:
    settings = [*PLAIN, "optimizer=adamw", "optimizer.warmup_steps=0", "trainer.max_bad_steps=1"]
    done = command("train", "-m", *settings, "optimizer.lr=1e36,1e-3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("training diverged") == 1
    (run,) = runs(tmp_path)
    assert "lr: 0.001" in (run / "config.yaml").read_text()


def test_the_same_sweep_again_skips_finished_runs_and_resumes_stopped_ones(tmp_path: Path) -> None:
    sweep = ("train", "-m", *PLAIN, "hydra.sweep.dir=sweep", "seed=1,2")
    first = succeed(*sweep, cwd=tmp_path)
    finished, stopped = (tmp_path / "sweep" / name for name in ("0_seed=1", "1_seed=2"))
    groups = group(results([tmp_path / "sweep"]))
    table = summary_lines(groups, compare(groups), target_loss(groups))
    assert first.splitlines()[-len(table) :] == table
    expected = (last_checkpoint(stopped) / "model.safetensors").read_bytes()
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}
    (stopped / "summary.json").unlink()
    shutil.rmtree(stopped / "checkpoints/step-000006")
    again = succeed(*sweep, cwd=tmp_path)
    assert "sweep/0_seed=1 is finished: nothing to do" in again
    assert "continuing sweep/1_seed=2 from step 3" in again
    assert (last_checkpoint(stopped) / "model.safetensors").read_bytes() == expected
    assert {path: path.stat().st_mtime_ns for path in before} == before
    line = refused(*sweep, "optimizer.lr=0.001", cwd=tmp_path)
    assert "hydra.sweep.dir: sweep/0_seed=1 was started with other settings (optimizer.lr)" in line


@pytest.mark.parametrize(
    "mistake",
    ["resume=auto", "resume=other/run", "data.path=none", "model=nano,none", "model.d_model=7"],
)
def test_a_sweep_that_is_refused_changes_nothing(tmp_path: Path, mistake: str) -> None:
    """Nor does one in the folder of another, or in an empty one."""
    for empty in ("empty", "other/mine"):
        (tmp_path / empty).mkdir(parents=True)
    (tmp_path / "other/run").mkdir(parents=True)
    (tmp_path / "other/run/config.yaml").touch()
    (tmp_path / "other/multirun.yaml").write_text("a: 1\n")
    (tmp_path / "file").touch()
    every = ("runs/new", "empty", "other", "file")
    settings = ("seed=1,2", "data=text", f"data.path={__file__}", mistake)
    for folder in every if mistake == "model.d_model=7" else every[:1]:
        refused("train", "-m", f"hydra.sweep.dir={folder}", *settings, cwd=tmp_path)
