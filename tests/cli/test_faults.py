"""Damaged files, full disks, malicious files and divergence end in one line and do no harm."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import (
    ROOT,
    TINY,
    command,
    files,
    succeed,
)


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


def test_a_full_disk_loses_no_checkpoint(copied: Path) -> None:
    """A limit on the size of files, which the weights exceed, stands for it."""
    before = files(copied / "run/checkpoints")
    resume = ("resume=run", "trainer.max_steps=60", "trainer.keep_checkpoints=3")
    allowed, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, most))  # which a new process inherits
    try:
        done = subprocess.run(
            [sys.executable, str(ROOT / "train.py"), *resume],
            cwd=copied,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, most))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: run")
    assert "File too large" in line and "space" in line
    assert files(copied / "run/checkpoints") == before
    succeed("train", "resume=run", "trainer.max_steps=9", cwd=copied)


class Payload:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "kind", [0, *(pytest.param(each, marks=pytest.mark.long) for each in range(1, 8))]
)
def test_nothing_in_a_run_is_executed(copied: Path, kind: int) -> None:
    """Each file of a run and of the cache is replaced by a malicious pickle or a `_target_`: every
    eighth one by the same."""
    sprung = copied / "sprung"
    planted = b"_target_: os.mkdir\npath: sprung\n"
    if kind % 4 < 3:
        planted = pickle.dumps(Payload(sprung), (0, 2, 5)[kind % 4])
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

    for number, place in [*enumerate(places)][kind::8]:
        here = copied.parent / str(number)
        shutil.copytree(copied, here, symlinks=True)
        (here / place).write_bytes(planted)
        is_read_by_train_alone = place.suffix in (".jsonl", ".bin") or place.parts[0] == ".cache"
        script, *settings = (
            ("train", "resume=run", "trainer.max_steps=8")
            if is_read_by_train_alone or number // 8 % 2
            else ("sample", "run=run", "max_new_tokens=5")
        )
        done = command(script, *settings, cwd=here)
        assert done.returncode in (0, 2), f"{place}: {done.stderr}"
        assert "Traceback" not in done.stderr, f"{place}: {done.stderr}"
        assert not (here / "sprung").exists() and not sprung.exists(), place
