"""Run directories and checkpoints on disk."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from common.errors import UserError
from common.files import HOST
from store.checkpoint import Checkpoints, TrainState, load_state
from store.run import Run, Summary, check_new
from store.weights import MODEL, OPTIMIZER
from tests.conftest import files


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def create(path: str | None, save_tokenizer: Callable[[Path], None] = lambda _: None) -> Run:
    return Run.create(path, {"config.yaml": "a: 1\n"}, {"text": "b"}, save_tokenizer)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path)


def tensors() -> dict[str, dict[str, torch.Tensor]]:
    """What a checkpoint holds."""
    return {name: {"values": torch.rand(9)} for name in (MODEL, OPTIMIZER)}


def save(checkpoints: Checkpoints, *steps: int, best: int | None = None, keep: int = 9) -> None:
    """Write the checkpoints after these steps, as of a run whose best step is the same in all."""
    for step in steps:
        checkpoints.save(tensors(), TrainState(step, best_step=best), keep)


def found(checkpoints: Checkpoints, which: str) -> int:
    """The step of the checkpoint that is opened as the last or the best."""
    return load_state(checkpoints.find(which, "run")).step


def test_two_runs_in_one_second_get_two_folders(here: Path) -> None:
    runs = [create(None) for _ in range(5)]
    assert {json.loads(run.data_file.read_text())["text"] for run in runs} == {"b"}
    assert len({run.path for run in runs}) == 5
    assert {run.path.parent for run in runs} == {Path("runs")}


def test_latest_is_the_run_that_was_started_last(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"^run: latest is not a run"):
        Run.open("latest", "run")
    names = ("first", "sweep/0", "elsewhere", "back", "sweep/1", "far/back", "last")
    newest = "first"
    for clock, name in zip((9e8, 1e9, 2e9, 1e9 - 120, 1e9 - 120, 0, 9e8), names, strict=True):
        monkeypatch.setattr(time, "time", lambda clock=clock: clock)
        create(name if name == "elsewhere" else f"runs/{name}")
        os.utime(here / "runs/first/config.yaml")  # as by a copy
        newest = name if name in ("first", "back", "last") else newest
        for word in ("latest", "runs/latest", str(here / "runs/latest")):
            assert Run.open(word, "run").path == Path("runs", newest)
    assert not (here / "runs/latest").exists()
    (here / "notebooks").mkdir()
    monkeypatch.chdir("notebooks")
    assert Run.open("../runs/latest", "run").path == here / "runs/last"


def test_a_run_of_a_sweep_or_verdict_is_the_latest_only_if_there_is_no_other(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def saved(name: str, step: int, best: int | None = None) -> str:
        save(create(name).checkpoints, step, best=best)
        return name

    def latest(setting: str = "run") -> str:
        return Run.open("latest", setting).path.as_posix()

    create("runs/begun")
    (create("runs/future").path / "data.json").write_text('{"started": 1e300}')
    swept = saved("runs/sweep/0", 3, 3)
    assert latest() == latest("resume") == swept, "the others have no checkpoint"
    single = saved("runs/single", 2)
    assert latest() == latest("resume") == single
    newer = saved("runs/sweep/1", 3, 3)
    assert latest() == latest("resume") == single
    note = f"note: using {single}; {newer} is newer, but is one of a sweep or verdict, or has no "
    assert note in capsys.readouterr().err
    evaluated = saved("runs/evaluated", 3, 3)
    last = saved("runs/last", 2)
    saved("runs/verdict/base/seed=1", 3, 3)
    assert (latest(), latest("resume")) == (evaluated, last)
    for name in (evaluated, single, last, "runs/sweep"):
        shutil.rmtree(name)
    assert latest() == "runs/verdict/base/seed=1"


@pytest.mark.parametrize("path", ["latest", "runs/latest"])
def test_a_folder_that_a_user_calls_latest_is_that_folder(here: Path, path: str) -> None:
    shutil.copytree(create("runs/mine").path, path)
    assert Run.open(path, "run").path == Path(path)
    for name in ("latest", "runs/latest"):
        with pytest.raises(UserError, match=rf"^run_dir: .*{name}.* (is reserved|exists)"):
            check_new(name)
    with pytest.raises(UserError, match=r"^run_dir: '\.' is reserved"):
        check_new(".")


@pytest.mark.parametrize("name", ["auto", "null", "it's"])
def test_the_setting_that_continues_a_run_names_its_folder(here: Path, name: str) -> None:
    """Not the word `auto`, nor nothing."""
    create(name)
    with pytest.raises(UserError) as caught:
        check_new(f"./{name}")
    (given,) = shlex.split(str(caught.value).partition("continue it with ")[2])
    value = given.removeprefix("resume=")
    assert value not in ("auto", "null") and Run.open(value, "resume").path == Path(name)


def test_a_copy_in_the_place_of_a_run_is_not_written_to(here: Path) -> None:
    run = create("run")
    run.check_in_place()
    shutil.copytree("run", "copy")
    Path("run").rename("elsewhere")
    for what in ("nothing", "copy"):
        if what == "copy":
            Path("copy").rename("run")
        before = files(here)
        with pytest.raises(UserError, match=r"^run: the run, or its lock file, was deleted, moved"):
            run.write_summary(Summary(*range(12)))
        with pytest.raises(UserError, match=r"^run: the run, or its"), run.in_place():
            raise FileNotFoundError
        assert files(here) == before


def test_what_killed_processes_left_goes_when_a_run_is_locked(here: Path) -> None:
    """And not when it is only read; what others write stays."""
    run = create("runs/run")
    run.checkpoints.save(tensors(), TrainState(1), 1)
    gone = subprocess.Popen(["true"])
    gone.wait()
    name, other = f".glassgpt-{HOST}-%d-{'0' * 16}", f".glassgpt-00000000-1-{'0' * 16}"
    dead, own, live = (name % number for number in (gone.pid, os.getpid(), os.getppid()))
    inside = ("{}", "checkpoints/{}/part", "checkpoints/step-000001/{}", "live/{}")
    for place in ("runs/{}", *(f"runs/run/{each}" for each in inside)):
        for left in (dead, own, live):  # `own` is of a process that had this one's number
            path = Path(place.format(left))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    Path("runs", other).touch()
    Path("runs/run", other).touch()
    before = files(here)
    run = Run.open("runs/run", "run")
    run.checkpoints.find("last", "run")
    assert files(here) == before
    run.lock("resume")
    assert {file.name for file in here.rglob(".glassgpt-*")} == {live, other}
    assert not Path("runs/run", other).exists()  # no other machine has the lock


def test_a_run_holds_no_links_and_no_pipes(here: Path) -> None:
    create("run")
    Path("run/checkpoints").mkdir()
    for link, target in (("checkpoints/last", "step-000001"), ("metrics.jsonl", "data.json")):
        place = Path("run", link)
        place.symlink_to(target)
        with pytest.raises(UserError, match=rf"^resume: {place} is a link, pipe"):
            Run.open("run", "resume")
        place.unlink()
    os.mkfifo("run/pipe")
    with pytest.raises(UserError, match=r"^run: run/pipe is a link, pipe"):
        Run.open("run", "run")


def test_a_path_into_a_run_is_named_with_its_folder(here: Path) -> None:
    run = create("runs/a b", lambda folder: (folder / "tokenizer.json").touch())
    for inside in ("config.yaml", "checkpoints/step-000001"):
        with pytest.raises(UserError, match=r"is not a run .*, such as run='runs/a b', make"):
            Run.open(str(run.path / inside), "run")


def test_a_run_is_created_in_no_folder_that_has_something(here: Path) -> None:
    """But in an empty one, also where a link of the user's leads to it."""
    for path in ("full", "disk/empty"):
        Path(path).mkdir(parents=True)
    Path("full/file").touch()
    Path("link").symlink_to("disk/empty")
    for path in ("full", "full/file"):
        with pytest.raises(UserError, match="run_dir"):
            check_new(path)
    for path in ("disk/empty", "link", "new/and/deep"):
        check_new(path)
    assert not Path("new").exists()
    create("link")
    assert Path("disk/empty/config.yaml").is_file() and Path("link").is_symlink()
    assert Run.open("link", "run").path == Path("disk/empty")


def test_a_run_is_whole_or_not_there(here: Path) -> None:
    fail = Mock(side_effect=OSError(28, "No space left on device"))
    (here / "empty").mkdir()
    before = files(here)
    for path in ("empty", "new/and/deep"):
        with pytest.raises(OSError, match="No space"):
            create(path, fail)
        assert files(here) == before
    create("empty")
    with pytest.raises(UserError, match=r"^run_dir: another process has just created empty"):
        create("empty")


def test_a_checkpoint_is_written_completely_or_not_at_all(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(checkpoints, 1, best=1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", Mock(side_effect=OSError("No space left on device")))
        with pytest.raises(OSError, match="space"):
            save(checkpoints, 2, best=2)
    assert found(checkpoints, "last") == 1
    for best in (2, 1):  # the second replaces the first
        save(checkpoints, 2, best=best)
    assert (found(checkpoints, "last"), found(checkpoints, "best")) == (2, 1)


def test_what_a_kill_prevented_is_completed(checkpoints: Checkpoints) -> None:
    """After a save or an evaluation. Later checkpoints stay, as of a run that goes back."""
    save(checkpoints, 1, 2, 3, 4, best=1)
    checkpoints.complete(TrainState(step=1, best_step=1), keep=1)
    assert checkpoints.steps == [1, 2, 3, 4]
    checkpoints.complete(TrainState(step=4, best_step=3), keep=1)
    assert (checkpoints.steps, found(checkpoints, "best")) == ([3, 4], 3)
    assert checkpoints.add_evaluation(TrainState(step=4, best_step=4, evaluated=4), keep=2)
    assert found(checkpoints, "best") == 4


def test_of_regular_checkpoints_the_newest_are_kept(checkpoints: Checkpoints) -> None:
    """Former bests, and those where a session stopped, do not push them out."""
    for step in range(1, 12):
        state = TrainState(step, best_step=min(step, 9))
        checkpoints.save(tensors(), state, keep=2, every=3)
    assert checkpoints.steps == [6, 9, 11]
    checkpoints.save(tensors(), TrainState(12, best_step=12), keep=2, every=3)
    assert checkpoints.steps == [9, 12]


def test_only_checkpoints_are_deleted(
    checkpoints: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(checkpoints, 1, best=1)
    # Copies, of which one has a name of our own form, and a folder that has one.
    mine = ("step-000001-good", "step-notes", "step-000005", ".step-000001", ".step-000001.bak")
    for name in mine:
        shutil.copytree(tmp_path / "step-000001", tmp_path / name)
    (tmp_path / "step-000002").mkdir()
    for step in (3, 5, 7):
        save(checkpoints, step, best=step, keep=1)
    names = {"best.json", "step-000007", "step-000005-1", "step-000002", *mine}
    names.remove("step-000005")  # renamed, since the run needed its name
    assert {path.name for path in tmp_path.iterdir()} == names
    assert f"note: {tmp_path / 'step-000005'} is no intact checkpoint" in capsys.readouterr().err
    assert found(checkpoints, "last") == 7


def damage(file: Path, how: str) -> None:
    content = file.read_bytes()
    if how == "another step":
        shutil.copy(file.parent.with_name("step-000001") / file.name, file)
    elif how == "missing":
        file.unlink()
    else:  # in the middle
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("model.safetensors", "missing"),
        ("optimizer.safetensors", "flipped"),
        ("state.json", "flipped"),
        ("state.json", "missing"),
        ("state.json", "another step"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(
    checkpoints: Checkpoints, name: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(checkpoints, 1, 2, best=2)
    file = checkpoints.folder / "step-000002" / name
    damage(file, how)
    for which in ("last", "best"):
        assert checkpoints.find(which, "run").name == "step-000001"
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"warning: {file} is ") and line.endswith("; using step-000001")
    damage(checkpoints.folder / "step-000001" / name, "missing")
    with pytest.raises(UserError, match=rf"step-000002/{name} .*step-000001/{name} .*no intact"):
        checkpoints.find("last", "run")


def test_a_checkpoint_that_the_run_replaces_meanwhile_is_no_damage(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(checkpoints, 1)
    look = Checkpoints._damage

    def replaced(self: Checkpoints, step: int) -> str | None:
        monkeypatch.setattr(Checkpoints, "_damage", look)
        save(checkpoints, 2, keep=1)
        return look(self, step)

    monkeypatch.setattr(Checkpoints, "_damage", replaced)
    assert found(checkpoints, "last") == 2
    assert not capsys.readouterr().err


def test_deleted_checkpoints_are_forgotten(
    checkpoints: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by a user who goes back to an earlier one; best.json follows with the next one."""
    for step in (1, 2, 3):
        save(checkpoints, step, best=step)
    shutil.rmtree(tmp_path / "step-000003")
    assert found(checkpoints, "last") == 2 and capsys.readouterr().err == ""
    assert found(checkpoints, "best") == 2
    assert "step-000003/state.json is missing" in capsys.readouterr().err
    save(checkpoints, 3, best=2)
    assert found(checkpoints, "best") == 2 and capsys.readouterr().err == ""
    shutil.rmtree(tmp_path / "step-000002")
    shutil.rmtree(tmp_path / "step-000001")
    assert found(checkpoints, "best") == 3
