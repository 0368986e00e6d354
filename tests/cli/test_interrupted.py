"""Runs that are killed, stopped and resumed from the real command line lose nothing."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import launch.start
from store.checkpoint import Checkpoints
from tests.conftest import (
    ROOT,
    SETTINGS,
    TINY,
    begin,
    command,
    files,
    finish,
    last_checkpoint,
    metrics,
    succeed,
    wait_for,
)
from training.callback import Callback
from training.trainer import Trainer

LONG = (
    *SETTINGS,
    "model.dropout=0.1",
    "trainer.max_steps=100",
    "trainer.eval_every=50",
    "observe.attention.every=100",
    "cache_dir=../cache",
)


def start(*settings: str, cwd: Path) -> subprocess.Popen[str]:
    return begin(str(ROOT / "train.py"), *settings, cwd=cwd)


def grows(path: Path) -> Callable[[], bool]:
    before = path.stat().st_size if path.exists() else 0
    return lambda: path.exists() and path.stat().st_size > before


def is_writing(checkpoints: Path) -> bool:
    """Whether there is a checkpoint that is not complete."""
    return any(path.is_dir() for path in checkpoints.glob(".glassgpt-*"))


def curves(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the scalars that TensorBoard shows, except those that depend on wall-clock time, and
    the steps of the attention maps."""
    events = EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    clock = ("training/tokens_per_second", "result/seconds")
    tags = [tag for tag in events.Tags()["scalars"] if not tag.startswith(clock)]
    found = {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in tags}
    if "attention" in events.Tags()["tensors"]:
        found["attention"] = sorted({(each.step, 0.0) for each in events.Tensors("attention")})
    return found


def assert_same(run: Path, whole: Path) -> None:
    """Assert that two runs have the same result."""
    for name in ("model.safetensors", "optimizer.safetensors"):
        for which in ("last", "best"):
            mine, theirs = (
                Checkpoints(each / "checkpoints").find(which, "run") / name for each in (run, whole)
            )
            assert mine.read_bytes() == theirs.read_bytes(), f"{which} {name}"
    assert metrics(run) == metrics(whole)
    assert curves(run) == curves(whole)
    clock = {"tokens_per_second": 0.0, "seconds": 0.0}
    mine, theirs = (json.loads((each / "summary.json").read_text()) for each in (run, whole))
    assert mine | clock == theirs | clock


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    finish(start(*LONG, "run_dir=run", cwd=folder))
    return folder / "run"


def kill_and_resume(folder: Path, moments: Sequence[str], rng: random.Random) -> tuple[int, int]:
    """Kill and resume a run at these moments, then let it finish.

    A kill happens during start-up ("start"), during the training loop ("loop"), or while a
    checkpoint is being written ("checkpoint"). Returns the number of killed processes, and how
    many of them left an incomplete checkpoint.
    """
    run, died, incomplete = folder / "run", 0, 0
    checkpoints = run / "checkpoints"
    for moment in moments:
        process = start(*LONG, "run_dir=run", "resume=auto", cwd=folder)
        if moment == "start":
            time.sleep(rng.uniform(0.1, 3))
        else:
            wait_for(grows(run / "metrics.jsonl"), process)
            if moment == "loop":
                time.sleep(rng.uniform(0, 0.2))
            else:
                wait_for(lambda: is_writing(checkpoints), process)
                time.sleep(rng.choice([0, rng.uniform(0, 0.004)]))
        process.kill()
        process.communicate(timeout=60)
        died += process.returncode == -signal.SIGKILL
        incomplete += is_writing(checkpoints)
    finish(start(*LONG, "run_dir=run", "resume=auto", cwd=folder))
    return died, incomplete


def test_killed_runs_end_as_if_nothing_had_happened(whole: Path, tmp_path: Path) -> None:
    died, _ = kill_and_resume(tmp_path, ("loop", "checkpoint"), random.Random(1))
    assert died == 2
    assert_same(tmp_path / "run", whole)


@pytest.mark.long
def test_fifty_kills(whole: Path, tmp_path: Path) -> None:
    died = incomplete = runs = 0
    while died < 50 or incomplete < 5:
        folder = tmp_path / str(runs)
        folder.mkdir()
        rng = random.Random(100 + runs)
        moments = rng.choices(["start", "loop", "checkpoint", "checkpoint"], k=10)
        found = kill_and_resume(folder, moments, rng)
        died, incomplete, runs = died + found[0], incomplete + found[1], runs + 1
        assert_same(folder / "run", whole)


def test_a_signal_stops_after_the_step(tmp_path: Path) -> None:
    process = start(*LONG, "trainer.checkpoint_every=0", "run_dir=run", cwd=tmp_path)
    run = tmp_path / "run"
    assert wait_for(lambda: len(metrics(run)) > 20, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    found = re.fullmatch(
        r"stopped by SIGINT after step (\d+)\. To continue: python train\.py resume=run\n", errors
    )
    assert found, errors
    step = int(found[1])
    assert last_checkpoint(run).name == f"step-{step:06d}"
    assert curves(run)["loss/bits_per_byte_train"][-1][0] == step == metrics(run)[-1]["step"]


def test_the_end_of_its_reader_ends_a_run_in_one_line(tmp_path: Path) -> None:
    """As in `train.py | head -1`."""
    process = start(*LONG, "run_dir=run", cwd=tmp_path)
    assert process.stdout and process.stderr
    assert process.stdout.readline(), process.stderr.read()
    process.stdout.close()
    (line,) = process.stderr.read().splitlines()
    assert process.wait(60) == 2
    assert line == "error: standard output: its reader has ended; a run continues with resume=..."


class Moves(Callback):
    """Moves a run at one event of its start or end; with `copies`, a copy takes its place."""

    def __init__(self, event: str, copies: bool) -> None:
        self.copies = copies
        setattr(self, event, self.move)

    def move(self, trainer: Trainer, *_: object) -> None:
        if not Path("elsewhere").exists() and trainer.state.step in (0, 6):
            Path("run").rename("elsewhere")
            if self.copies:
                shutil.copytree("elsewhere", "run")
            self.left = files(Path("run"))


OFTEN = [("on_start", True), ("on_eval_batch", False), ("on_finish", True), ("on_end", False)]
SELDOM = [("on_step", False), ("on_metrics", True), ("on_eval", True), ("on_checkpoint", True)]
SELDOM += [("on_finish", False), ("on_end", True), ("on_result", False)]


@pytest.mark.parametrize(
    ("event", "copies"),
    [*OFTEN, *(pytest.param(*moment, marks=pytest.mark.long) for moment in SELDOM)],
)
def test_nothing_is_written_or_said_where_a_run_was(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str, copies: bool
) -> None:
    mover, build = Moves(event, copies), launch.start.build_observers
    monkeypatch.setattr(launch.start, "build_observers", lambda *parts: [mover, *build(*parts)])
    done = command("train", *TINY, "run_dir=run", f"cache_dir={tiny / '.cache'}", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: run: the run, or its lock file, was deleted, moved or")
    assert "python " not in done.stdout
    assert files(tmp_path / "run") == mover.left and (tmp_path / "run").exists() == copies
    assert {path.name for path in tmp_path.iterdir()} <= {"run", "elsewhere"}


def handles_signals(process: subprocess.Popen[str]) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = re.findall(r"SigCgt:\s+(\w+)", status)
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")
def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    """A step here has a hundred thousand micro-batches, which take minutes. The next signals count
    as one with the first for a second."""
    sizes = ("trainer.batch_size=100000", "trainer.grad_accumulation=100000")
    process = start(*LONG, *sizes, "run_dir=run", cwd=tmp_path)
    assert wait_for(lambda: handles_signals(process), process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (-signal.SIGTERM, "")
    assert not metrics(tmp_path / "run")


def test_a_stop_while_the_data_is_prepared_publishes_nothing(tmp_path: Path) -> None:
    """What it leaves has a temporary name, and is removed by the next run."""
    process = start("data.n_bytes=20000000", "tokenizer=byte", "run_dir=run", cwd=tmp_path)
    begun = (".cache/*/.*/*.bin", ".cache/.*/*")
    assert wait_for(lambda: any(any(tmp_path.glob(each)) for each in begun), process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (-signal.SIGINT, "")
    assert not (tmp_path / "run").exists()
    (left,) = (tmp_path / ".cache").iterdir()
    assert left.name.startswith(".glassgpt-")
    succeed("train", *TINY, cwd=tmp_path)
    assert not left.exists()


@pytest.mark.long
def test_a_sweep_stops_with_its_workers(tmp_path: Path) -> None:
    joblib = ("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=1,2")
    process = start(*joblib, *TINY, "trainer.max_steps=1000000", cwd=tmp_path)
    assert wait_for(lambda: len([*tmp_path.glob("runs/sweep_*/*/metrics.jsonl")]) == 2, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)  # also until the workers close their output
    *begun, last = filter(None, errors.splitlines())
    assert (process.returncode, last) == (130, "stopped")
    assert len(begun) == 2 and all(line.startswith("training ") for line in begun)


def test_a_full_disk_loses_no_checkpoint(here: Path) -> None:
    """A limit on the size of files, which the weights exceed, stands for it."""
    resource = pytest.importorskip("resource")  # Windows has none
    before = files(here / "run/checkpoints")
    allowed, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, most))  # which a new process inherits
    try:
        done = command("train", "resume=run", "trainer.max_steps=60", cwd=here, OMP_NUM_THREADS="1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, most))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: run")
    assert "File too large" in line and "space" in line
    assert files(here / "run/checkpoints") == before
    succeed("train", "resume=run", "trainer.max_steps=9", cwd=here)
