"""Signals stop a process wherever it is: in a step, twice, or while it waits for other ranks."""

from __future__ import annotations

import os
import pty
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.conftest import ROOT, TINY, begin
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


def assert_stops(process: subprocess.Popen[str], number: int) -> None:
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, errors
    assert errors.split() == ["stopped"]


def assert_ends(process: subprocess.Popen[str], number: int) -> None:
    """At once, by the signal itself: a rank may wait where Python handles no signals."""
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
    assert (run / "checkpoints/last").resolve().name == f"step-{int(step):06d}"


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


def test_a_stop_while_the_data_is_prepared_leaves_nothing_behind(tmp_path: Path) -> None:
    settings = ("data.n_bytes=20000000", "tokenizer=byte", "run_dir=run")
    process = start(*settings, cwd=tmp_path)
    written = tmp_path.glob
    assert wait_for(
        lambda: any(written(".cache/*/.*/*.bin")) or any(written(".cache/.*/*")), process
    )
    process.send_signal(signal.SIGINT)
    assert_stops(process, signal.SIGINT)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.long
def test_a_sweep_stops_with_its_workers(tmp_path: Path) -> None:
    joblib = ("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=1,2")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *joblib, *TINY, "trainer.max_steps=1000000"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert wait_for(lambda: len([*tmp_path.glob("runs/sweep_*/*/metrics.jsonl")]) == 2, process)
    process.send_signal(signal.SIGTERM)
    assert_stops(process, signal.SIGTERM)  # also waits for the workers to close their output
    with pytest.raises(ProcessLookupError):
        for _ in range(PATIENCE):
            os.killpg(process.pid, 0)
            time.sleep(1)


def handles_signals(process: subprocess.Popen[str]) -> bool:
    """Whether the process has installed its handlers: an interpreter needs some time to start."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = re.findall(r"SigCgt:\s+(\w+)", status)
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def interrupt_twice(
    folder: Path, reached: Callable[[], bool], rng: random.Random, max_steps: int, long_steps: bool
) -> tuple[int, str]:
    """Press Ctrl-C twice in a terminal, the first time at most half a second after `reached`.

    Returns the exit status and all output.
    """
    sizes = ("trainer.batch_size=1024", "trainer.grad_accumulation=256") if long_steps else ()
    length = f"trainer.max_steps={max_steps}"
    settings = [*LONG, length, *sizes, "run_dir=run", "cache_dir=.cache"]
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *settings],
        cwd=folder,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"},
    )
    os.close(inner)
    output: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # at the end
            while True:
                output.append(os.read(terminal, 1 << 16))

    reader = threading.Thread(target=read)
    reader.start()
    wait_for(lambda: handles_signals(process) and reached(), process)
    for longest in (0.5, 0.2):
        time.sleep(rng.choice([0.0, rng.uniform(0, longest)]))
        process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE)
    finally:
        process.kill()
        reader.join()
        os.close(terminal)
    return process.returncode, b"".join(output).decode()


def check_two_interrupts(folder: Path, moment: str, rng: random.Random) -> int:
    """Interrupt a run twice at about `moment`, check how it ends, and return its status."""
    run = folder / "run"
    reached = {
        "start": lambda: True,
        "data": (folder / ".cache").exists,
        "run": run.exists,
        "loop": (run / "metrics.jsonl").exists,
        "step": (run / "metrics.jsonl").exists,
        "save": lambda: any((run / "checkpoints").glob(".glassgpt-*")),
        "end": (run / "checkpoints/step-000040").exists,
        "summary": (run / "summary.json").exists,
    }[moment]
    is_end = moment in ("end", "summary")
    max_steps = 40 if is_end else 100_000
    status, output = interrupt_twice(folder, reached, rng, max_steps, moment == "step")
    # In the last milliseconds no Python runs any more, and the signal itself ends the process.
    expected = {130, -signal.SIGINT} | ({0} if is_end else set())
    assert status in expected, f"{moment}: {status}\n{output}"
    for word in ("Traceback", "Exception", "Error", "error"):
        assert word not in output, f"{moment}:\n{output}"
    assert output.rfind("\x1b[?25l") <= output.rfind("\x1b[?25h"), "the cursor is hidden"
    return status


MOMENTS = ("start", "data", "run", "loop", "step", "save", "end", "summary")


@pytest.mark.parametrize(
    "moment",
    [
        each if each in ("step", "save") else pytest.param(each, marks=pytest.mark.long)
        for each in MOMENTS
    ],
)
def test_two_interrupts_never_print_a_traceback(tmp_path: Path, moment: str) -> None:
    check_two_interrupts(tmp_path, moment, random.Random(MOMENTS.index(moment)))


IGNORED = """
import os, signal, sys, time
from configs.cli import exit_on_signals, one_line_errors
class Ends:
    def __del__(self):
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a caller in the background ignores
with one_line_errors():
    exit_on_signals()
    Ends()
    time.sleep(20)
"""


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_in_a_destructor_is_not_lost(name: str, status: int) -> None:
    """Python ignores an exception there."""
    command = [sys.executable, "-c", IGNORED, name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=15)
    assert done.returncode == status
    assert "Traceback" not in done.stderr and "stopped" in done.stderr


@pytest.mark.long
def test_two_interrupts_at_many_moments(tmp_path: Path) -> None:
    rng, statuses = random.Random(1), []
    for number in range(100):
        folder = tmp_path / str(number)
        folder.mkdir()
        statuses.append(check_two_interrupts(folder, MOMENTS[number % len(MOMENTS)], rng))
    assert statuses.count(0) < 40  # most were interrupted before they had ended
