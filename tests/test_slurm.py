"""docs/slurm.sh: a job on two nodes with two ranks each is stopped, and continues in the next."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import (
    ROOT,
    SETTINGS,
    TRAIN,
    assert_close,
    finish,
    heed_signals,
    last_step,
    metrics,
    torchrun,
    wait_for,
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc"),
]

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
    step = last_step(run)
    assert step == metrics(run)[-1]["step"] < 100

    output = finish(start())
    assert re.findall(r"continuing \S+ from step (\d+)", output) == [str(step)]
    finish(torchrun(4, TRAIN, *LONGER, "run_dir=uncut", cwd=tmp_path))
    assert_close(metrics(run), metrics(tmp_path / "uncut"))
