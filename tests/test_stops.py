"""Signals stop a process wherever it is: in a step, twice, or while it waits for other ranks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT, TINY, begin, heed_signals, last_checkpoint, succeed
from tests.conftest import metrics as lines
from tests.test_interrupted import LONG, start, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")

# Much longer than a stop takes, and much shorter than ranks wait for each other.
PATIENCE = 60
ENDLESS = (*LONG, "trainer.max_steps=1000000", "trainer.checkpoint_every=0", "run_dir=run")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def start_ranks(
    *settings: str, cwd: Path, port: int, ranks: tuple[int, ...] = (0, 1)
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start some of two ranks, as torchrun does on each of two machines."""
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        begin(
            *(str(ROOT / "train.py"), *settings),
            cwd=cwd,
            **{**rendezvous, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in ranks
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def assert_ends(process: subprocess.Popen[str], number: int) -> None:
    """At once, by the signal itself."""
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (-number, "")


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_main_rank_stops_while_it_waits_for_the_other(tmp_path: Path, number: int) -> None:
    port = free_port()

    def is_waiting() -> bool:
        with socket.socket() as store:
            return store.connect_ex(("127.0.0.1", port)) == 0

    with start_ranks(*TINY, cwd=tmp_path, port=port, ranks=(0,)) as (process,):
        assert wait_for(is_waiting, process)
        process.send_signal(number)
        assert_ends(process, number)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_rank_stops_while_it_waits_for_the_main_rank(tmp_path: Path, number: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with start_ranks(*TINY, cwd=tmp_path, port=port, ranks=(1,)) as (process,):
            silent.accept()
            process.send_signal(number)
            assert_ends(process, number)


@pytest.mark.long
def test_a_rank_stops_while_the_main_rank_prepares_the_data(tmp_path: Path) -> None:
    pipe = tmp_path / "text"
    os.mkfifo(pipe)
    settings = [each for each in TINY if not each.startswith("data.")]
    text = ("data=text", f"data.path={pipe}")
    with start_ranks(*settings, *text, cwd=tmp_path, port=free_port()) as (main, other):
        with pipe.open("w") as source:  # the main rank reads it, and the other waits
            time.sleep(1)
            other.send_signal(signal.SIGTERM)
            assert_ends(other, signal.SIGTERM)
            source.write("Once there was a hen.\n" * 2000)
        _, errors = main.communicate(timeout=PATIENCE)
    assert main.returncode not in (0, None), errors
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
def test_a_signal_to_one_rank_stops_all_after_the_step(tmp_path: Path) -> None:
    with start_ranks(*ENDLESS, cwd=tmp_path, port=free_port()) as (main, other):
        run = tmp_path / "run"
        assert wait_for(lambda: len(lines(run)) > 3, main)
        other.send_signal(signal.SIGTERM)
        _, errors = main.communicate(timeout=PATIENCE)
        other.communicate(timeout=PATIENCE)
    assert main.returncode == other.returncode == 143
    (step,) = re.findall(r"stopped by SIGTERM after step (\d+)\. To continue", errors)
    assert lines(run)[-1]["step"] == int(step)
    assert last_checkpoint(run).name == f"step-{int(step):06d}"


@pytest.mark.long
def test_nohup_is_respected(tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["nohup", sys.executable, str(ROOT / "train.py"), *ENDLESS],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    run = tmp_path / "run"
    assert wait_for(lambda: len(lines(run)) > 3, process)
    process.send_signal(signal.SIGHUP)
    before = len(lines(run))
    assert wait_for(lambda: len(lines(run)) > before + 3, process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143 and "stopped by SIGTERM after step" in errors


def test_a_stop_while_the_data_is_prepared_publishes_nothing(tmp_path: Path) -> None:
    """What it leaves has a temporary name, and is removed by the next run."""
    process = start("data.n_bytes=20000000", "tokenizer=byte", "run_dir=run", cwd=tmp_path)
    written = tmp_path.glob
    assert wait_for(
        lambda: any(written(".cache/*/.*/*.bin")) or any(written(".cache/.*/*")), process
    )
    process.send_signal(signal.SIGINT)
    assert_ends(process, signal.SIGINT)
    assert not (tmp_path / "run").exists()
    (left,) = (tmp_path / ".cache").iterdir()
    assert left.name.startswith(".glassgpt-")
    succeed("train", *TINY, cwd=tmp_path)
    assert not left.exists()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_stops_with_its_workers(tmp_path: Path, number: int) -> None:
    joblib = ("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=1,2")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *joblib, *TINY, "trainer.max_steps=1000000"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_signals,
    )
    assert wait_for(lambda: len([*tmp_path.glob("runs/sweep_*/*/metrics.jsonl")]) == 2, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)  # also until the workers close their output
    assert (process.returncode, errors.split()) == (130, ["stopped"])
    with pytest.raises(ProcessLookupError):
        for _ in range(PATIENCE):
            os.killpg(process.pid, 0)
            time.sleep(1)
