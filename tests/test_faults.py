"""Damaged files, full disks, malicious files and divergence end in one line and do no harm."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import (
    NEW_INTERPRETER,
    ROOT,
    TINY,
    begin,
    command,
    files,
    succeed,
)
from training.checkpoint import FILES, MODEL
from training.state import STATE


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6 steps with checkpoints at steps 3, 4 and 6."""
    folder = tmp_path_factory.mktemp("good")
    settings = (*TINY, "trainer.checkpoint_every=2", "trainer.keep_checkpoints=3")
    succeed("train", *settings, "run_dir=run", cwd=folder)
    return folder


@pytest.fixture
def copied(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path / "here", symlinks=True)
    return tmp_path / "here"


def damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        os.truncate(path, path.stat().st_size // 2)
    else:
        flipped = bytearray(path.read_bytes())
        flipped[len(flipped) // 2] ^= 1
        path.write_bytes(flipped)


@pytest.mark.parametrize("how", ["missing", "truncated", "flipped"])
@pytest.mark.parametrize(
    "name",
    [
        each if each == MODEL else pytest.param(each, marks=pytest.mark.long)
        for each in (*FILES, STATE)
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_previous_one_used(
    copied: Path, name: str, how: str
) -> None:
    run = copied / "run"
    whole = (run / "checkpoints/step-000006/model.safetensors").read_bytes()
    damage(run / "checkpoints/step-000006" / name, how)
    settings = ("train", "resume=run") if how == "flipped" else ("sample", "run=run")
    done = command(*settings, cwd=copied)
    assert done.returncode == 0, done.stderr
    warning, *more = done.stderr.splitlines()
    if settings[0] == "sample":
        assert more == ["run, step 4"]
    elif name == STATE:  # without which a folder may be the user's
        (note,) = more
        assert note.startswith("note: run/checkpoints/step-000006 ")
        assert (run / "checkpoints/step-000006-1" / MODEL).exists()
    else:
        assert more == []
    assert warning.startswith("warning: ") and warning.endswith("; using step-000004")
    assert f"step-000006/{name}" in warning
    if how != "flipped":
        return
    assert (run / "checkpoints/step-000006/model.safetensors").read_bytes() == whole
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps) and steps[-1] == 6


def test_if_all_checkpoints_are_damaged_all_are_named(copied: Path) -> None:
    for step in (2, 4, 6):
        damage(copied / f"run/checkpoints/step-00000{step}/model.safetensors", "flipped")
    for script, setting in (
        ("train", "resume=run"),
        ("sample", "run=run"),
        ("evaluate", "run=run"),
    ):
        done = command(script, setting, cwd=copied)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert all(f"step-00000{step}/model.safetensors" in done.stderr for step in (2, 4, 6))


def test_a_damaged_best_and_a_missing_checkpoint_are_named(copied: Path) -> None:
    checkpoints = copied / "run/checkpoints"
    damage(checkpoints / "step-000006/model.safetensors", "flipped")
    done = command("sample", "run=run", "checkpoint=best", "max_new_tokens=5", cwd=copied)
    assert done.returncode == 0
    assert "step-000006/model.safetensors" in done.stderr and "using step-000004" in done.stderr
    shutil.rmtree(checkpoints / "step-000006")
    done = command("evaluate", "run=run", cwd=copied)
    assert done.returncode == 0 and "is missing" in done.stderr


def limited(*settings: str, cwd: Path, file_size: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *settings],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size)),
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_on_a_full_disk(copied: Path) -> None:
    def write_to_full_disk(script: str, *arguments: str) -> tuple[int, str]:
        code = "import os, runpy, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); "
        code += "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
        run = ("-c", code, str(ROOT / f"{script}.py"), *arguments)
        process = begin(*run, cwd=copied, PYTHONPATH=str(ROOT))
        _, errors = process.communicate(timeout=120)
        return process.returncode, errors

    status, errors = write_to_full_disk("sample", "run=run", "max_new_tokens=5")
    assert status == 2 and errors.count("\n") == 2
    begins = (
        "run, step 6\nerror: standard output or a file: cannot be read or written (No space left"
    )
    assert errors.startswith(begins)
    status, errors = write_to_full_disk("train", *TINY, "run_dir=full", "trainer.max_steps=99999")
    assert status == 2 and errors.count("\n") == 1
    assert errors.startswith("error: ") and "No space left" in errors


@pytest.mark.parametrize(
    "file_size", [20_000, *(pytest.param(each, marks=pytest.mark.long) for each in (2_000, 100))]
)
def test_a_full_disk_loses_no_checkpoint(copied: Path, file_size: int) -> None:
    """Each limit on the file size makes another writer fail: weights, events, metrics, log."""
    before = files(copied / "run/checkpoints")
    resume = ("resume=run", "trainer.max_steps=60", "trainer.keep_checkpoints=3")
    done = limited(*resume, cwd=copied, file_size=file_size)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: run")
    assert "File too large" in line and "space" in line
    assert files(copied / "run/checkpoints") == before
    succeed("train", "resume=run", "trainer.max_steps=9", cwd=copied)


@pytest.mark.long
def test_a_small_disk(copied: Path) -> None:
    disk = copied / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.decode().strip()}")
    try:
        shutil.copytree(copied / "run", disk / "run", symlinks=True)
        before = files(disk / "run/checkpoints")
        free = os.statvfs(disk)
        (disk / "filler").write_bytes(bytes(free.f_bavail * free.f_bsize - 8192))
        resume = ("resume=disk/run", "trainer.max_steps=60", "trainer.keep_checkpoints=3")
        done = command("train", *resume, cwd=copied, **NEW_INTERPRETER)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: ") and "No space left" in line
        assert files(disk / "run/checkpoints") == before
        (disk / "filler").unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        done = command("train", *resume, cwd=copied, **NEW_INTERPRETER)
        assert done.returncode == 2 and "Read-only file system" in done.stderr
        assert done.stderr.count("\n") == 1
        subprocess.run(["mount", "-o", "remount,rw,size=8m", str(disk)], check=True)
        succeed("train", "resume=disk/run", "trainer.max_steps=9", cwd=copied, **NEW_INTERPRETER)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


class Payload:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "kind", [0, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 2, 3))]
)
def test_nothing_in_a_run_is_executed(copied: Path, kind: int) -> None:
    """Each file of a run and of the cache is replaced by a malicious pickle or a `_target_`: every
    fourth one by the same."""
    sprung = copied / "sprung"
    planted = b"_target_: os.mkdir\npath: sprung\n"
    if kind < 3:
        planted = pickle.dumps(Payload(sprung), (0, 2, 5)[kind])
        with pytest.raises(FileExistsError):  # the payload works
            pickle.loads(planted), pickle.loads(planted)
        sprung.rmdir()
    places = [
        path.relative_to(copied)
        for path in sorted([*(copied / "run").rglob("*"), *(copied / ".cache").rglob("*")])
        if path.is_file()
        and path.name != "lock"
        and not {"step-000003", "step-000004"} & {*path.parts}
    ]
    assert len(places) > 15

    for number, place in [*enumerate(places)][kind::4]:
        here = copied.parent / str(number)
        shutil.copytree(copied, here, symlinks=True)
        (here / place).write_bytes(planted)
        is_read_by_train_alone = place.suffix in (".jsonl", ".bin") or place.parts[0] == ".cache"
        script, *settings = (
            ("train", "resume=run", "trainer.max_steps=8")
            if is_read_by_train_alone or number % 2
            else ("sample", "run=run", "max_new_tokens=5")
        )
        done = command(script, *settings, cwd=here)
        assert done.returncode in (0, 2), f"{place}: {done.stderr}"
        assert "Traceback" not in done.stderr, f"{place}: {done.stderr}"
        assert not (here / "sprung").exists() and not sprung.exists(), place


def test_a_config_that_names_code_does_not_run_it(copied: Path) -> None:
    """Tags of YAML are refused; to the reader of settings, Hydra's `_target_` is a name."""
    config = copied / "run/config.yaml"
    kept = config.read_text()
    for script, run, planted in (
        ("sample", "run", "x: !!python/object/apply:os.mkdir [sprung]\n"),
        ("sample", "run", "model: {_target_: os.mkdir, path: sprung}\n"),
        ("train", "resume", "observe: {_target_: os.mkdir, path: sprung}\n"),
    ):
        config.write_text(kept + planted)
        done = command(script, f"{run}=run", cwd=copied)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert "config.yaml" in done.stderr
        assert not (copied / "sprung").exists()
