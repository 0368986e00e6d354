"""Run directories and checkpoints on disk."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

from common.errors import UserError
from configs.schema import preset
from model import GPT
from tests.conftest import files, small_config
from training.checkpoint import Checkpoints
from training.device import choose_device
from training.optimizer import Optimizer
from training.run import Run, check_new
from training.state import TrainState, load_state
from training.weights import MODEL, OPTIMIZER, load_optimizer, load_weights

ADAMW = preset("optimizer", "adamw", lr=1e-2, warmup_steps=0, decay_fraction=0.0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def create(path: str) -> Run:
    return Run.create(path, "a: 1\n", {}, "0", lambda folder: None)


def parts() -> tuple[GPT, Optimizer]:
    model = GPT(small_config(1, 2, 8, 4), 5)
    return model, Optimizer(model, ADAMW, max_steps=10)


def tensors() -> dict[str, dict[str, torch.Tensor]]:
    """What a checkpoint holds."""
    model, optimizer = parts()
    return {MODEL: dict(model.named_parameters()), OPTIMIZER: optimizer.state_tensors()}


def test_two_runs_in_one_second_get_two_folders(here: Path) -> None:
    paths = {Run.create(None, "a: 1\n", {}, "0", lambda folder: None).path for _ in range(5)}
    assert len(paths) == 5
    assert all(path.parent == Path("runs") for path in paths)


def test_latest_points_to_the_newest_run_but_not_to_its_events(here: Path) -> None:
    for name in ("one", "two"):
        run = Run.create(
            f"runs/{name}", f"name: {name}\n", {"config.yaml": "x"}, "0", lambda folder: None
        )
        (run.path / "events.out.tfevents.1").touch()
        run.point_latest()
        latest = Path("runs/latest")
        assert (latest / "config.yaml").read_text() == f"name: {name}\n"
        assert Run.open("runs/latest", "run").path.resolve() == run.path.resolve()
        (run.path / "metrics.jsonl").write_text("{}")  # files that are written later appear, too
        assert (latest / "metrics.jsonl").read_text() == "{}"
    assert not list(latest.rglob("events*"))


def test_latest_points_to_a_run_elsewhere(
    here: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "run"
    run = create(str(elsewhere))
    run.point_latest()
    assert Run.open("runs/latest", "run").path == elsewhere


def test_a_copy_in_the_place_of_a_run_is_not_written_to(here: Path) -> None:
    run = create("run")
    run.check_in_place()
    shutil.copytree("run", "copy")
    Path("run").rename("elsewhere")
    for what in ("nothing", "copy"):
        if what == "copy":
            Path("copy").rename("run")
        with pytest.raises(UserError, match=r"^run: was deleted, moved, renamed or replaced"):
            run.checkpoints.save(tensors(), TrainState(step=1), is_best=True, keep=1)
        assert not Path("run/checkpoints").exists()


def test_only_links_to_the_own_checkpoints_are_accepted(here: Path) -> None:
    create("run")
    checkpoints = Path("run/checkpoints")
    checkpoints.mkdir()
    for name, target in (("last", "step-000001"), ("best", "step-000002")):
        (checkpoints / name).symlink_to(target)
    Run.open("run", "run")
    for link, away in (
        (checkpoints / "step-000001", str(here)),
        (checkpoints / "best", "../../elsewhere"),
        (Path("run/best"), "data.json"),
    ):
        before = link.readlink() if link.is_symlink() else None
        link.unlink(missing_ok=True)
        link.symlink_to(away)
        with pytest.raises(UserError, match=rf"^resume: {link} is a link to "):
            Run.open("run", "resume")
        link.unlink()
        if before:
            link.symlink_to(before)
    os.mkfifo("run/pipe")
    with pytest.raises(UserError, match=r"^run: run/pipe is no file or folder"):
        Run.open("run", "run")


def test_a_run_is_opened_from_within(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create("run")
    checkpoints = Path("run/checkpoints")
    checkpoints.mkdir()
    (checkpoints / "last").symlink_to("step-000001")
    (checkpoints / ".last.0123456789abcdef").symlink_to("step-000002")  # while it is replaced
    monkeypatch.chdir("run")
    assert Run.open(".", "run").path == Path()
    (Path("checkpoints") / "best").symlink_to("..")
    with pytest.raises(UserError, match=r"^run: checkpoints/best is a link to \.\."):
        Run.open(".", "run")


def test_an_existing_folder_is_rejected(here: Path) -> None:
    (here / "full").mkdir()
    (here / "full" / "file").touch()
    with pytest.raises(UserError, match="run_dir"):
        check_new("full")
    with pytest.raises(UserError, match="run_dir"):
        check_new("full/file")
    (here / "empty").mkdir()
    check_new("empty")
    check_new("new/and/deep")
    assert not (here / "new").exists()


def test_a_checkpoint_is_written_completely_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(tensors(), TrainState(step=1), is_best=True, keep=2)

    def fail_to_rename(path: Path, target: Path) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail_to_rename)
        with pytest.raises(UserError, match="space"):
            checkpoints.save(tensors(), TrainState(step=2), is_best=True, keep=2)
    assert load_state(checkpoints.find("last", "run")).step == 1
    checkpoints.save(tensors(), TrainState(step=2), is_best=False, keep=2)
    assert load_state(checkpoints.find("last", "run")).step == 2
    assert load_state(checkpoints.find("best", "run")).step == 1


@pytest.mark.parametrize("keep", [1, 2])
def test_the_newest_and_the_best_checkpoint_are_kept(tmp_path: Path, keep: int) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in range(1, 7):
        checkpoints.save(tensors(), TrainState(step=step), is_best=step == 2, keep=keep)
    steps = [2, *range(7 - keep, 7)]
    names = {f"step-{step:06d}" for step in steps} | {"last", "best", "written.json"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert load_state(checkpoints.find("best", "run")).step == 2


def test_of_regular_checkpoints_the_newest_are_kept(tmp_path: Path) -> None:
    """Those that were the best for a while, or where a session stopped, do not push them out."""
    checkpoints = Checkpoints(tmp_path)
    for step in range(1, 12):
        checkpoints.save(tensors(), TrainState(step=step), is_best=step < 10, keep=2, every=3)
    assert checkpoints.steps == [6, 9, 11]
    checkpoints.save(tensors(), TrainState(step=12), is_best=True, keep=2, every=3)
    assert checkpoints.steps == [9, 12]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", [b"", b"\x00" * 40, b"[1]"])
def test_a_damaged_checkpoint_is_rejected(tmp_path: Path, name: str, damage: bytes) -> None:
    model, optimizer = parts()
    path = Checkpoints(tmp_path).save(tensors(), TrainState(step=1), is_best=True, keep=2)
    (path / name).write_bytes(damage)
    with pytest.raises(UserError, match=name):
        load_weights(model, path)
        load_optimizer(optimizer, path)
        load_state(path)


def test_weights_of_another_shape_are_rejected(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(tensors(), TrainState(step=1), is_best=True, keep=2)
    with pytest.raises(UserError, match="model"):
        load_weights(GPT(small_config(2, 2, 8, 4), 5), path)


def test_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match=r"trainer\.device: cuda is not available"):
            choose_device("cuda")


def test_only_what_the_run_wrote_is_deleted(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(tensors(), TrainState(step=1), is_best=True, keep=1)
    # Copies, and a name of our own form.
    mine = ("step-000001-good", "step-notes", "step-000005", ".step-000001", ".step-000001.bak")
    for name in mine:
        shutil.copytree(tmp_path / "step-000001", tmp_path / name)
    for step in (2, 3, 5, 7):
        checkpoints.save(tensors(), TrainState(step=step), is_best=True, keep=1)
    names = {"last", "best", "written.json", "step-000007", "step-000005-1", *mine}
    names.remove("step-000005")  # renamed, since the run needed its name
    assert {path.name for path in tmp_path.iterdir()} == names
    assert load_state(checkpoints.find("last", "run")).step == 7


def test_a_folder_in_the_place_of_a_link_is_renamed(tmp_path: Path) -> None:
    """`cp -rL` puts copies of checkpoints there."""
    Checkpoints(tmp_path / "run").save(tensors(), TrainState(step=1), is_best=True, keep=1)
    run = tmp_path / "copied"
    shutil.copytree(tmp_path / "run", run)
    checkpoints = Checkpoints(run)
    save = partial(checkpoints.save, tensors(), keep=1)
    save(TrainState(step=2), is_best=False)
    names = {path.name for path in run.iterdir()}
    assert names == {"last", "last-1", "best", "written.json", "step-000001", "step-000002"}
    assert (run / "last").is_symlink() and not (run / "best").is_symlink()
    assert checkpoints.find("best", "run").name == "step-000001"
    (run / "best/notes.txt").touch()
    save(TrainState(step=3), is_best=True)
    names = {path.name for path in run.iterdir()}
    assert names == {"last", "last-1", "best", "best-1", "written.json", "step-000003"}
    assert (run / "best-1/notes.txt").is_file()
    assert load_state(run / "last-1").step == load_state(run / "best-1").step == 1
    (run / "best").unlink()
    (run / "step-000003").rename(run / "best")
    save(TrainState(step=4), is_best=True)
    names = {path.name for path in run.iterdir()}
    assert names == {
        *("last", "last-1", "best", "best-1", "best-2"),
        *("written.json", "step-000004"),
    }
    assert load_state(checkpoints.find("best", "run")).step == 4


@pytest.mark.parametrize("kind", ["a copy", "a link", "a link to nothing", "a file"])
def test_what_the_user_put_in_the_place_of_latest_stays(
    here: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    theirs = Run.create("runs/theirs", "a: 1\n", {}, "0", lambda folder: None).path
    latest = Path("runs/latest")
    if kind == "a copy":
        shutil.copytree(theirs, latest)
    elif kind == "a file":
        latest.touch()
    else:
        latest.symlink_to("theirs" if kind == "a link" else "nowhere")
    before = files(Path("runs"))
    run = Run.create("elsewhere", "a: 2\n", {}, "0", lambda folder: None)
    run.point_latest()
    assert files(Path("runs")) == before
    (line,) = capsys.readouterr().err.splitlines()
    assert "runs/latest stays as it is" in line and "elsewhere" in line
    if kind in ("a copy", "a link"):  # they are runs, which can be trained and not moved
        Run.open("runs/latest", "resume").point_latest()
        assert files(Path("runs")) == before
        assert capsys.readouterr().err == ""
