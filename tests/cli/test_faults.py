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

from tests.conftest import ROOT, command, files, succeed


def test_a_full_disk_loses_no_checkpoint(here: Path) -> None:
    """A limit on the size of files, which the weights exceed, stands for it."""
    before = files(here / "run/checkpoints")
    resume = ("resume=run", "trainer.max_steps=60")
    allowed, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, most))  # which a new process inherits
    try:
        done = subprocess.run(
            [sys.executable, str(ROOT / "train.py"), *resume],
            cwd=here,
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
    assert files(here / "run/checkpoints") == before
    succeed("train", "resume=run", "trainer.max_steps=9", cwd=here)


class Payload:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "kind", [0, *(pytest.param(each, marks=pytest.mark.long) for each in range(1, 8))]
)
def test_nothing_in_a_run_is_executed(here: Path, kind: int) -> None:
    """Each file of a run and of the cache is replaced by a malicious pickle or a `_target_`: every
    eighth one by the same."""
    sprung = here / "sprung"
    planted = b"_target_: os.mkdir\npath: sprung\n"
    if kind % 4 < 3:
        planted = pickle.dumps(Payload(sprung), (0, 2, 5)[kind % 4])
        with pytest.raises(FileExistsError):  # the payload works
            pickle.loads(planted), pickle.loads(planted)
        sprung.rmdir()
    places = [
        path.relative_to(here)
        for path in sorted([*(here / "run").rglob("*"), *(here / ".cache").rglob("*")])
        if path.is_file() and path.name != "lock" and "step-000003" not in path.parts
    ]
    assert len(places) > 15

    for number, place in [*enumerate(places)][kind::8]:
        copied = here.parent / str(number)
        shutil.copytree(here, copied, symlinks=True)
        (copied / place).write_bytes(planted)
        is_read_by_train_alone = place.suffix in (".jsonl", ".bin") or place.parts[0] == ".cache"
        script, *settings = (
            ("train", "resume=run", "trainer.max_steps=8")
            if is_read_by_train_alone or number // 8 % 2
            else ("sample", "run=run", "max_new_tokens=5")
        )
        done = command(script, *settings, cwd=copied)
        assert done.returncode in (0, 2), f"{place}: {done.stderr}"
        assert "Traceback" not in done.stderr, f"{place}: {done.stderr}"
        assert not (copied / "sprung").exists() and not sprung.exists(), place
