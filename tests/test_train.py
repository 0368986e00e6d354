"""train.py from the command line: the run directory, resuming and sweeps."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import launch.start
from inference.opening import open_run
from tests.conftest import (
    PLAIN,
    ROOT,
    TINY,
    begin,
    command,
    files,
    finish,
    last_checkpoint,
    metrics,
    refused,
    seal,
    succeed,
)


def test_the_run_directory(tiny_run: Path) -> None:
    """It has what the guide lists."""
    guide = (ROOT / "docs/quickstart.md").read_text("utf-8").partition("### The folder of a run")[2]
    rows = re.findall(r"^\| (`.+?) \|", guide.partition("\n\nWherever")[0], re.MULTILINE)
    listed = {name.split("/")[0] for row in rows for name in re.findall("`(.+?)`", row)}
    found = {path.name for path in tiny_run.iterdir()}
    named = {"events.out.tfevents.*" if "tfevents" in name else name for name in found}
    assert named - {"00006"} == listed - {"<step>", "resumed.yaml", "diverged.json"}
    assert len(list(tiny_run.glob("events.out.tfevents.*"))) == 1
    tags = EventAccumulator(str(tiny_run)).Reload().Tags()
    assert tags["images"] and not tags["histograms"], "off by default"
    overrides = yaml.safe_load((tiny_run / ".hydra/overrides.yaml").read_text())
    assert [override.replace("'", "") for override in overrides] == list(TINY)
    assert "validation loss" in (tiny_run / "train.log").read_text()


def test_the_summary(tiny: Path, tiny_run: Path) -> None:
    summary = json.loads((tiny_run / "summary.json").read_text())
    assert summary["steps"] == 6
    assert summary["tokens"] == 6 * 4 * 32
    weights = load_file(last_checkpoint(tiny_run) / "model.safetensors")
    assert summary["parameters"] == sum(tensor.size for tensor in weights.values())
    last = [line for line in metrics(tiny_run) if "val_loss" in line][-1]
    assert last["step"] == 6
    for name in ("val_loss", "val_bpb", "floor_bpb"):
        assert summary[name] == last[name]
    assert summary["seconds"] > 0 and summary["tokens_per_second"] > 0
    assert f"{summary['val_bpb']:.4f} bits per byte" in (tiny / "output.txt").read_text()


def test_the_same_settings_give_the_same_weights(
    tiny: Path, tiny_run: Path, tmp_path: Path
) -> None:
    """Whatever observes them."""
    settings = (
        "observe.tensorboard=false",
        "observe.terminal=false",
        "observe.histograms.every=2",
        f"cache_dir={tiny / '.cache'}",
    )
    succeed("train", *TINY, *settings, "run_dir=run", cwd=tmp_path)
    run = tmp_path / "run"
    for name in ("model", "optimizer"):
        again = (last_checkpoint(run) / f"{name}.safetensors").read_bytes()
        assert again == (last_checkpoint(tiny_run) / f"{name}.safetensors").read_bytes()
    assert not list(run.glob("events.*"))


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.long)])
def test_resume(tiny: Path, tmp_path: Path, threads: int) -> None:
    """Three steps and three more give the result of six, and Hydra overwrites nothing."""
    own = {"OMP_NUM_THREADS": "2"} if threads == 2 else {}  # which spin if all cores are busy
    # Without a decay, the learning rate does not depend on max_steps.
    flat = [*TINY, "optimizer.decay_fraction=0", f"cache_dir={tiny / '.cache'}"]
    succeed("train", *flat, "run_dir=whole", cwd=tmp_path, **own)
    succeed("train", *flat, "trainer.max_steps=3", "run_dir=cut", cwd=tmp_path, **own)
    before = files(tmp_path / "cut")
    succeed("train", "resume=cut", "trainer.max_steps=6", cwd=tmp_path, **own)
    after, whole = files(tmp_path / "cut"), files(tmp_path / "whole")
    for name in ("model.safetensors", "optimizer.safetensors"):
        name = f"checkpoints/step-000006/{name}"
        assert after[name] == whole[name]
    for name in ("config.yaml", ".hydra/overrides.yaml"):
        assert after[name] == before[name]
    assert [line["step"] for line in metrics(tmp_path / "cut")] == [2, 3, 3, 4, 6, 6]


def test_help_explains_each_setting(tmp_path: Path) -> None:
    """As the comments in configs/ do; those of `nano` also explain other models."""
    lines = succeed("train", "--help", "model=gpt2", cwd=tmp_path).splitlines()
    assert "  n_layers: 12                      # transformer blocks" in lines
    assert "  beta1: 0.9                        # AdamW: decay rate of the mean of the" in lines
    odd = "observe.samples.prompt='a: 1\n\nb " + "long " * 50 + "'"
    assert "  beta1: 0.9 " in succeed("train", "--help", odd, cwd=tmp_path)


def test_overrides_of_a_resume_are_kept(tiny: Path, run: Path, tmp_path: Path) -> None:
    cache = f"cache_dir={tiny / '.cache'}"
    assert not (tmp_path / "run/resumed.yaml").exists()
    succeed("train", "resume=run", "trainer.max_steps=8", "optimizer.lr=1e-3", cache, cwd=tmp_path)
    changed = ", optimizer.lr=0.001, trainer.max_steps=8\n"
    assert changed in (tmp_path / "run/train.log").read_text()
    assert "is finished: nothing to do" in succeed("train", "resume=run", cwd=tmp_path)
    # A group that is given as it is keeps what is below it.
    succeed("train", "resume=run", "optimizer=muon", "trainer.max_steps=9", cwd=tmp_path)
    stored = yaml.safe_load((tmp_path / "run/resumed.yaml").read_text())
    assert stored["optimizer"]["lr"] == 1e-3 and stored["trainer"]["max_steps"] == 9


def test_one_command_starts_and_continues_a_run(tmp_path: Path) -> None:
    name, prompt = "name=Ida's hen", "observe.samples.prompt=${a, 'b"
    auto, run = (*PLAIN, "resume=auto", name, prompt), tmp_path / "runs/Ida's hen"
    assert "continuing" not in succeed("train", *auto, cwd=tmp_path)
    assert yaml.safe_load((run / "config.yaml").read_text())["resume"] is None
    assert "is finished: nothing to do" in succeed("train", *auto, cwd=tmp_path)
    assert "other settings (optimizer.lr)" in refused(
        "train", *auto, "optimizer.lr=1", cwd=tmp_path
    )
    succeed("train", f"resume={run}", "trainer.max_steps=8", cwd=tmp_path)
    assert "is finished: nothing to do" in succeed("train", *auto, cwd=tmp_path)
    assert [line["step"] for line in metrics(run)] == [2, 3, 4, 6, 6, 8, 8]


def test_a_run_that_another_process_has_started_meanwhile_is_continued(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an equal command, while this one prepared the text."""
    prepare = launch.start.load_dataset

    def load_dataset(*arguments: Any, **options: Any) -> Any:
        if not (tmp_path / "run").exists():
            shutil.copytree(tiny_run, tmp_path / "run")
        return prepare(*arguments, **options)

    monkeypatch.setattr(launch.start, "load_dataset", load_dataset)
    again = succeed("train", *TINY, "resume=auto", "run_dir=run", cwd=tmp_path)
    assert "run is finished: nothing to do" in again
    shutil.rmtree(tmp_path / "run")
    done = command("train", *TINY, "run_dir=run", cwd=tmp_path)
    assert done.returncode == 2 and "another process has just created run" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"run", ".cache"}


@pytest.mark.long
@pytest.mark.parametrize("sweep", [False, True])
def test_of_two_equal_commands_one_trains_and_the_other_waits(tmp_path: Path, sweep: bool) -> None:
    place = ("-m", "hydra.sweep.dir=sweep", "hydra/launcher=joblib", "seed=1,2")
    settings = place if sweep else ("resume=auto", "run_dir=run")
    both = [begin(str(ROOT / "train.py"), *PLAIN, *settings, cwd=tmp_path) for _ in range(2)]
    said = "".join(map(finish, both))
    assert said.count("is finished: nothing to do") == (2 if sweep else 1)
    assert len([*tmp_path.glob("**/data.json")]) == (2 if sweep else 1)
    assert not [*tmp_path.glob(".glassgpt-*"), *tmp_path.glob("*/.glassgpt-*")]


def test_a_run_that_has_lost_its_checkpoints_does_not_begin_again(
    run: Path, tmp_path: Path
) -> None:
    shutil.rmtree(run / "checkpoints")
    line = refused("train", "resume=run", "trainer.max_steps=8", cwd=tmp_path)
    assert "resume: run has no checkpoint; " in line


def test_a_text_may_move_but_not_change(tmp_path: Path) -> None:
    """A run finds its text from any folder."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "text.txt").write_text("A hen sat on the hill and looked at the sea.\n" * 400)
    settings = ["data=text", "data.path=text.txt", "data.val_fraction=0.3", "run_dir=run"]
    ours = [each for each in PLAIN if not each.startswith("data.")]
    succeed("train", *ours, *settings, cwd=there)
    start, is_put_before_prompts = open_run(there / "run").tokenizer.beginning()
    assert len(start) > 1 and not is_put_before_prompts  # of a text that nothing divides
    evaluate = ("evaluate", "run=there/run", "checkpoint=last")
    evaluation = succeed(*evaluate, cwd=tmp_path)
    (there / "text.txt").rename(tmp_path / "moved.txt")
    moved = ("data=text", "data.path=moved.txt")
    assert succeed(*evaluate, *moved, "split=val", cwd=tmp_path) == evaluation
    more = ("train", "resume=there/run", "trainer.max_steps=8")
    assert "text.txt" in refused(*more, cwd=tmp_path)
    succeed(*more, *moved, cwd=tmp_path)
    succeed(*evaluate, "split=all", cwd=tmp_path)
    with (tmp_path / "moved.txt").open("a") as text:
        text.write("The end.\n")
    again = ("train", "resume=there/run", "trainer.max_steps=9")
    for mistake in (again, (*again, *moved), evaluate, (*evaluate, "split=all")):
        done = command(*mistake, cwd=tmp_path)
        assert done.returncode == 2 and "has changed" in done.stderr
    succeed(*evaluate, *moved, cwd=tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")
def test_a_signal_during_the_imports_stops_at_once(tmp_path: Path) -> None:
    process = begin(str(ROOT / "train.py"), *TINY, cwd=tmp_path)
    maps = Path(f"/proc/{process.pid}/maps")
    while "libtorch_python" not in maps.read_text():
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (-signal.SIGINT, "")
    assert not (tmp_path / "runs").exists()


def test_a_missing_summary_is_written_on_resume(tiny: Path, run: Path, tmp_path: Path) -> None:
    """The summary is missing after a kill between the last checkpoint and the end."""
    shutil.copytree(tiny / ".cache", tmp_path / ".cache")
    before = json.loads((run / "summary.json").read_text())
    lines = (run / "metrics.jsonl").read_text()
    (run / "summary.json").unlink()
    said = succeed("train", "resume=run", cwd=tmp_path)
    assert "nothing to do" not in said and "warning" not in said  # of what is written again
    after = json.loads((run / "summary.json").read_text())
    assert {key: after[key] for key in after if "second" not in key} == {
        key: before[key] for key in before if "second" not in key
    }
    assert (run / "metrics.jsonl").read_text() == lines


@pytest.mark.parametrize("steps", [6, 7])
def test_a_resume_removes_what_a_kill_left(
    tiny: Path, run: Path, tmp_path: Path, steps: int
) -> None:
    """Also of a run that is finished, which keeps as many checkpoints as it was trained with."""
    shutil.copytree(run / "checkpoints/step-000006", run / "checkpoints/step-000002")
    seal(run / "checkpoints/step-000002", step=2)
    (run / f"checkpoints/.glassgpt-00000000-1-{'0' * 16}").mkdir()
    more = (f"trainer.max_steps={steps}", f"cache_dir={tiny / '.cache'}")
    said = succeed("train", "resume=run", "trainer.keep_checkpoints=1", *more, cwd=tmp_path)
    assert ("nothing to do" in said) == (steps == 6)
    best = json.loads((run / "checkpoints/best.json").read_text())["step"]
    kept = {f"step-{step:06d}" for step in {best, 6, steps, *([3] if steps == 6 else [])}}
    assert {path.name for path in (run / "checkpoints").iterdir()} == kept | {"best.json"}


def test_the_best_loss_is_of_the_tokens_that_evaluations_now_score(
    run: Path, tmp_path: Path
) -> None:
    seal(last_checkpoint(tmp_path / "run"), best_val_loss=0.0)  # of other tokens
    fewer = ("trainer.eval_tokens=50", "trainer.eval_every=1")
    succeed("train", "resume=run", "trainer.max_steps=9", *fewer, cwd=tmp_path)
    measured = [line for line in metrics(tmp_path / "run") if "val_loss" in line]
    losses = {line["step"]: line["val_loss"] for line in measured if line["step"] > 6}
    assert sorted(losses) == [7, 8, 9]
    best = min(losses, key=lambda step: losses[step])
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["best_val_loss"] == losses[best]
    stored = json.loads((tmp_path / "run/checkpoints/best.json").read_text())
    assert stored == {"step": best}
