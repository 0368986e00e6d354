"""Training on several CPU ranks with torchrun: same losses, one run, complete checkpoints."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import filelock
import pytest

from tests.conftest import (
    ROOT,
    TINY_MODEL,
    begin,
    finish,
    has_checkpoint,
    last_step,
    metrics,
    succeed,
    torchrun,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")

SETTINGS = (
    *TINY_MODEL,
    "data.n_bytes=60000",
    "trainer.max_steps=12",
    "trainer.batch_size=8",
    "trainer.grad_accumulation=2",
    "trainer.eval_every=6",
    "trainer.checkpoint_every=4",
    "trainer.log_every=1",
    "observe.attention.every=6",
    "observe.samples.max_new_tokens=20",
)


TRAIN = ROOT / "train.py"
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
    sys.exit(int(sys.argv[1]))
"""


@pytest.mark.long
@pytest.mark.parametrize("status", [0, 3])
def test_a_rank_that_ends_just_after_a_collective(tmp_path: Path, status: int) -> None:
    """Without `leaving_ranks`, gloo's threads abort most of such processes."""
    script = tmp_path / "script.py"
    script.write_text(ENDS_AFTER_A_COLLECTIVE, encoding="utf-8")
    process = torchrun(4, script, str(status), cwd=tmp_path)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode == 0) == (status == 0), errors
    assert "terminate called" not in errors
    if status:
        assert f"exitcode  : {status}" in errors
    else:
        assert output.count("sum [4.0, 4.0, 4.0]\n") == 4


def assert_close(one: list[dict[str, float]], other: list[dict[str, float]]) -> None:
    assert [line.keys() for line in one] == [line.keys() for line in other]
    for mine, theirs in zip(one, other, strict=True):
        assert mine == pytest.approx(theirs, rel=2e-3), mine["step"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a single rank."""
    folder = tmp_path_factory.mktemp("alone")
    succeed("train", *SETTINGS, "run_dir=run", cwd=folder)
    return folder / "run"


def test_two_ranks_match_one_rank(alone: Path, tmp_path: Path) -> None:
    output = finish(torchrun(2, TRAIN, *SETTINGS, "run_dir=run", cwd=tmp_path))
    assert output.count("To watch:") == 1, "only the main process prints"
    assert_close(metrics(tmp_path / "run"), metrics(alone))
    assert succeed("sample", "run=run", "max_new_tokens=5", cwd=tmp_path)


def children(process: subprocess.Popen[str]) -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(each) for each in path.read_text().split()] if path.exists() else []


@pytest.mark.long
def test_the_job_ends_when_a_rank_dies(tmp_path: Path) -> None:
    settings = (*SETTINGS, "trainer.max_steps=100000", "run_dir=run")
    process = torchrun(2, TRAIN, *settings, cwd=tmp_path)
    run = tmp_path / "run"
    while process.poll() is None and not has_checkpoint(run):
        time.sleep(0.01)
    os.kill(children(process)[-1], signal.SIGKILL)
    began = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert time.monotonic() - began < 60
    wait_until_free(run)
    succeed("train", "resume=run", f"trainer.max_steps={last_step(run) + 4}", cwd=tmp_path)


@pytest.mark.long
def test_a_batch_size_that_ranks_cannot_share_is_rejected(tmp_path: Path) -> None:
    process = torchrun(2, TRAIN, *SETTINGS, "trainer.batch_size=6", cwd=tmp_path)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    (line,) = (each for each in errors.splitlines() if each.startswith("error: "))
    assert line.startswith("error: trainer.batch_size: 6 cannot be divided among 2 ranks")
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
@pytest.mark.parametrize("late", [0, 1])
def test_either_rank_can_start_first(alone: Path, tmp_path: Path, late: int) -> None:
    """Ranks are started without torchrun, as on a cluster, one of them seconds after the other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = []
    for rank in (1 - late, late):
        mine = {**rendezvous, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        processes.append(begin(str(TRAIN), *SETTINGS, "run_dir=run", cwd=tmp_path, **mine))
        time.sleep(3)
    outputs = [finish(each) for each in processes]
    assert sorted(output.count("To watch:") for output in outputs) == [0, 1]
    assert_close(metrics(tmp_path / "run"), metrics(alone))


@pytest.mark.long
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_to_torchrun_stops_all_ranks_with_a_checkpoint(tmp_path: Path, name: str) -> None:
    settings = (*SETTINGS, "trainer.max_steps=100000", "trainer.checkpoint_every=0", "run_dir=run")
    process = torchrun(2, TRAIN, *settings, cwd=tmp_path)
    run = tmp_path / "run"
    while process.poll() is None and not (run / "metrics.jsonl").exists():
        time.sleep(0.01)
    if name == "SIGINT":  # a terminal sends Ctrl-C to every process, and torchrun forwards it
        for rank in children(process):
            os.kill(rank, signal.SIGINT)
    process.send_signal(getattr(signal, name))
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    (stopped,) = re.findall(
        rf"stopped by {name} after step (\d+)\. To continue: .*resume=run", errors
    )
    assert last_step(run) == int(stopped) == metrics(run)[-1]["step"]


def wait_until_free(run: Path) -> None:
    """Wait until no process trains the run."""
    with filelock.FileLock(run / "lock", timeout=60):
        pass
