"""Several nodes: two agents of torchrun with two ranks each, one of which is lost and replaced."""

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

from tests.conftest import ROOT, begin, finish, heed_signals, last_step, metrics, succeed, torchrun
from tests.test_interrupted import wait_for
from tests.test_ranks import SETTINGS, TRAIN, assert_close, children
from tests.test_stops import free_port

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc"),
]

# At higher rates, 100 steps enlarge what sums in another order change.
RATES = ("optimizer.adamw_lr=1e-2", "optimizer.beta2=0.95", "optimizer.weight_decay=0.1")
DECAY = ("optimizer.decay_fraction=0.7", "optimizer.decay_power=1")
LONGER = (*SETTINGS, *RATES, *DECAY, "trainer.max_steps=100")
CONTINUED = re.compile(r"continuing \S+ from step (\d+)")


@pytest.fixture(scope="module")
def uncut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with four ranks of one agent that was never interrupted."""
    folder = tmp_path_factory.mktemp("uncut")
    finish(torchrun(4, TRAIN, *LONGER, "run_dir=run", cwd=folder))
    return folder / "run"


def start_agent(address: str, port: int, cwd: Path) -> subprocess.Popen[str]:
    agent = (
        *("-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=2", "--max-restarts=3"),
        *("--rdzv_backend=c10d", f"--rdzv_endpoint=localhost:{port}", f"--local-addr={address}"),
    )
    train = (str(TRAIN), *LONGER, "resume=auto", "run_dir=run")
    return begin(*agent, *train, cwd=cwd, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")


def is_open(port: int) -> bool:
    with socket.socket() as rendezvous:
        return rendezvous.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def ended(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """After a failure, no rank goes on."""
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()


# Agents are ordered by their addresses: the one that is lost has the main process, or has not.
@pytest.mark.parametrize(
    ("name", "addresses"),
    [("SIGKILL", ("localhost", "127.0.0.1")), ("SIGTERM", ("127.0.0.1", "localhost"))],
)
def test_an_agent_that_is_lost_is_replaced(
    uncut: Path, tmp_path: Path, name: str, addresses: tuple[str, str]
) -> None:
    run, port = tmp_path / "run", free_port()
    first = start_agent(addresses[0], port, tmp_path)
    with ended(first):
        assert wait_for(lambda: is_open(port), first)  # it hosts the rendezvous
        lost = start_agent(addresses[1], port, tmp_path)
        with ended(lost):
            assert wait_for((run / "checkpoints/step-000008").exists, first)
            ranks = children(lost) if name == "SIGKILL" else []
            lost.send_signal(getattr(signal, name))
            for rank in ranks:
                os.kill(rank, signal.SIGKILL)
            lost.communicate(timeout=60)
        step = last_step(run)
        if name == "SIGTERM":  # no step is lost
            assert step == metrics(run)[-1]["step"] < 100
        replacement = start_agent(addresses[1], port, tmp_path)
        with ended(replacement):
            output = finish(first) + finish(replacement)
    assert CONTINUED.findall(output) == [str(step)]
    assert_close(metrics(run), metrics(uncut))


def test_nodes_that_do_not_share_the_run_are_told(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    succeed("train", *SETTINGS, "run_dir=run", cwd=tmp_path / "here")
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    auto = (str(TRAIN), *SETTINGS, "resume=auto", "run_dir=run")
    main, other = (
        begin(*auto, cwd=tmp_path / name, **rendezvous, RANK=str(rank), LOCAL_RANK=str(rank))
        for rank, name in enumerate(("here", "there"))
    )
    main.communicate(timeout=120)
    _, errors = other.communicate(timeout=120)
    assert other.returncode == 2
    assert errors == (
        "error: run_dir: run is not a run on rank 1, unlike on the main process; "
        "give a folder that all nodes share\n"
    )


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


def test_the_job_file_for_slurm_continues_in_the_next_job(uncut: Path, tmp_path: Path) -> None:
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
        return subprocess.Popen(
            ["bash", str(ROOT / "docs/slurm.sh"), *LONGER],
            cwd=tmp_path,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heed_signals,
        )

    port = next(each for each in range(20_000, 30_000) if not is_open(each))
    run, job = tmp_path / "runs/name", start()
    assert wait_for((run / "checkpoints/step-000008").exists, job)
    job.send_signal(signal.SIGUSR1)
    output, errors = job.communicate(timeout=60)
    assert (tmp_path / "requeued").exists(), output + errors
    step = last_step(run)
    assert step == metrics(run)[-1]["step"] < 100

    output = finish(start())
    assert CONTINUED.findall(output) == [str(step)]
    assert_close(metrics(run), metrics(uncut))
