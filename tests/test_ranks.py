"""Training on several CPU ranks with torchrun: same losses, one run, complete checkpoints."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import (
    SETTINGS,
    TRAIN,
    assert_close,
    begin,
    finish,
    free_port,
    last_checkpoint,
    metrics,
    succeed,
    torchrun,
    wait_for,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")


ENDLESS = ("trainer.max_steps=1000000", "trainer.checkpoint_every=0", "run_dir=run")
ENDS_AFTER_A_COLLECTIVE = """
import sys

import torch

from training.distributed import join_ranks, leaving_ranks

with leaving_ranks():
    with join_ranks(torch.device("cpu")) as ranks:
        import torch.distributed.nn  # as DDP does; it keeps the process group

        total = ranks.sum([1.0, 1.0, 1.0])
        # One write each: the ranks share the output.
        sys.stdout.write(f"sum {total}\\n")
        sys.stdout.flush()
"""


@pytest.mark.long
def test_a_rank_that_ends_just_after_a_collective(tmp_path: Path) -> None:
    """Without `leaving_ranks`, gloo's threads abort most of such processes."""
    script = tmp_path / "script.py"
    script.write_text(ENDS_AFTER_A_COLLECTIVE, encoding="utf-8")
    output = finish(torchrun(4, script, cwd=tmp_path))
    assert output.count("sum [4.0, 4.0, 4.0]\n") == 4


def test_two_ranks_match_one_rank(tmp_path: Path) -> None:
    few = (*SETTINGS, "trainer.max_steps=4", "trainer.eval_every=2", "trainer.checkpoint_every=2")
    succeed("train", *few, "run_dir=alone", cwd=tmp_path)
    output = finish(torchrun(2, TRAIN, *few, "run_dir=run", cwd=tmp_path))
    assert output.count("To watch:") == 1, "only the main process prints"
    assert_close(metrics(tmp_path / "run"), metrics(tmp_path / "alone"))
    assert succeed("sample", "run=run", "max_new_tokens=5", cwd=tmp_path)


@contextmanager
def start_ranks(
    *settings: str, folders: tuple[Path, Path]
) -> Iterator[tuple[subprocess.Popen[str], ...]]:
    """Start two ranks, as torchrun does on each of two machines."""
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    processes = tuple(
        begin(str(TRAIN), *settings, cwd=folder, **rendezvous, RANK=rank, LOCAL_RANK=rank)
        for rank, folder in zip("01", folders, strict=True)
    )
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.long
def test_a_signal_to_one_rank_stops_all_after_the_step(tmp_path: Path) -> None:
    with start_ranks(*SETTINGS, *ENDLESS, folders=(tmp_path, tmp_path)) as (main, other):
        run = tmp_path / "run"
        assert wait_for(lambda: len(metrics(run)) > 3, main)
        other.send_signal(signal.SIGTERM)
        _, errors = main.communicate(timeout=60)
        other.communicate(timeout=60)
    assert main.returncode == other.returncode == 143
    (step,) = re.findall(r"stopped by SIGTERM after step (\d+)\. To continue", errors)
    assert metrics(run)[-1]["step"] == int(step)
    assert last_checkpoint(run).name == f"step-{int(step):06d}"


@pytest.mark.long
def test_nodes_that_do_not_share_the_run_are_told(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    succeed("train", *SETTINGS, "run_dir=run", cwd=here)
    auto = (*SETTINGS, "resume=auto", "run_dir=run")
    with start_ranks(*auto, folders=(here, there)) as (_, other):
        _, errors = other.communicate(timeout=120)
    assert other.returncode == 2
    assert errors == (
        "error: run_dir: run is not a run on rank 1, unlike on the main process; "
        "give a folder that all nodes share\n"
    )
