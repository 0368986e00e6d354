"""Training on several CPU ranks with torchrun: same losses, one run, complete checkpoints. And
docs/slurm.sh: a job on two nodes with two ranks each is stopped, and continues in the next."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import (
    ROOT,
    SETTINGS,
    TRAIN,
    begin,
    finish,
    heed_signals,
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


def assert_close(one: list[dict[str, float]], other: list[dict[str, float]]) -> None:
    assert [line.keys() for line in one] == [line.keys() for line in other]
    for mine, theirs in zip(one, other, strict=True):
        assert mine == pytest.approx(theirs, rel=2e-3), mine["step"]


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
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
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


# At higher rates, 100 steps enlarge what sums in another order change.
RATES = ("optimizer.adamw_lr=1e-2", "optimizer.beta2=0.95", "optimizer.weight_decay=0.1")
DECAY = ("optimizer.decay_fraction=0.7", "optimizer.decay_power=1")
LONGER = (*SETTINGS, *RATES, *DECAY, "trainer.max_steps=100")


def is_open(port: int) -> bool:
    with socket.socket() as rendezvous:
        return rendezvous.connect_ex(("127.0.0.1", port)) == 0


SRUN = """#!/bin/bash
while [ "$1" != torchrun ]; do shift; done
for node in $(seq "$SLURM_NNODES"); do
    "$@" &
    echo $! >> "$AGENTS"
done
wait $(cat "$AGENTS")
"""
SCANCEL = """#!/bin/bash
[ "$*" = "--signal=TERM $SLURM_JOB_ID" ] && kill -TERM $(cat "$AGENTS")
"""
SCONTROL = """#!/bin/bash
[ "$*" = "show hostnames here,there" ] && printf 'localhost\\nother\\n'
[ "$*" = "requeue $SLURM_JOB_ID" ] && touch requeued
"""


@pytest.mark.long
def test_the_job_file_for_slurm_continues_in_the_next_job(tmp_path: Path) -> None:
    """With stand-ins for Slurm's commands, which start both nodes here."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in {"srun": SRUN, "scancel": SCANCEL, "scontrol": SCONTROL}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tmp_path / "train.py").symlink_to(ROOT / "train.py")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").touch()

    def start() -> subprocess.Popen[str]:
        (tmp_path / "agents").unlink(missing_ok=True)
        variables = {
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "AGENTS": str(tmp_path / "agents"),
            "PET_LOCAL_ADDR": "127.0.0.1",  # torchrun's --local-addr
            "OMP_NUM_THREADS": "1",
            "SLURM_JOB_ID": str(port - 20_000),
            "SLURM_JOB_NAME": "name",
            "SLURM_JOB_NODELIST": "here,there",
            "SLURM_NNODES": "2",
            "SLURM_GPUS_ON_NODE": "2",
            "SLURM_CPUS_PER_TASK": "1",
        }
        heed_signals()
        return subprocess.Popen(
            ["bash", str(ROOT / "docs/slurm.sh"), *LONGER],
            cwd=tmp_path,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    port = next(each for each in range(20_000, 30_000) if not is_open(each))
    run, job = tmp_path / "runs/name", start()
    assert wait_for((run / "checkpoints/step-000008").exists, job)
    job.send_signal(signal.SIGUSR1)
    output, errors = job.communicate(timeout=60)
    assert (tmp_path / "requeued").exists(), output + errors
    step = metrics(run)[-1]["step"]
    assert step < 100 and last_checkpoint(run).name == f"step-{step:06d}"

    output = finish(start())
    assert re.findall(r"continuing \S+ from step (\d+)", output) == [str(step)]
    finish(torchrun(4, TRAIN, *LONGER, "run_dir=uncut", cwd=tmp_path))
    assert_close(metrics(run), metrics(tmp_path / "uncut"))
