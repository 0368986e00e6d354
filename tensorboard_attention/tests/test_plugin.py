"""The index finds every logged step, whatever state the files are in, and serves nothing else."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.application import TensorBoardWSGIApp
from tensorboard.plugins.base_plugin import TBContext
from torch.utils.tensorboard import SummaryWriter
from werkzeug.test import Client

from tensorboard_attention import add_attention, encode
from tensorboard_attention.index import Index
from tensorboard_attention.plugin import AttentionLoader, AttentionPlugin
from tensorboard_attention.tests.conftest import served
from tensorboard_attention.tests.events import MAPS, TOKENS


def log(folder: Path, steps: list[int], purge: int | None = None) -> Path:
    """An event file with a map at each step. TensorBoard's memory keeps fewer than 12 steps."""
    writer = SummaryWriter(str(folder), purge_step=purge)
    for step in steps:
        writer.add_scalar("loss", step, step)
        add_attention(writer, "probe", MAPS, TOKENS, step)
    writer.close()
    return max(folder.glob("*tfevents*"))


def steps(logdir: Path) -> dict[str, dict[str, list[int]]]:
    index = Index(str(logdir))
    index.refresh()
    return index.steps()


def test_every_step_of_every_run_is_found(tmp_path: Path) -> None:
    log(tmp_path, [5])
    log(tmp_path / "sweep" / "0", list(range(12)))
    (tmp_path / "none").mkdir()
    SummaryWriter(str(tmp_path / "scalars")).close()
    (tmp_path / "latest").symlink_to("sweep", target_is_directory=True)
    (tmp_path / "sweep" / "around").symlink_to("..", target_is_directory=True)
    assert steps(tmp_path) == {".": {"probe": [5]}, "sweep/0": {"probe": list(range(12))}}


def test_new_steps_are_found(tmp_path: Path) -> None:
    index = Index(str(tmp_path))
    index.refresh()
    assert index.steps() == {}
    writer = SummaryWriter(str(tmp_path / "run"))
    for step in range(3):
        add_attention(writer, "probe", MAPS, TOKENS, step)
        writer.flush()
        index.refresh()
        assert index.steps() == {"run": {"probe": list(range(step + 1))}}
    writer.close()
    shutil.rmtree(tmp_path / "run")
    index.refresh()
    assert index.steps() == {}


def test_steps_that_a_resumed_run_repeats_are_listed_once(tmp_path: Path) -> None:
    log(tmp_path, [0, 10, 20, 30])
    log(tmp_path, [15, 25], purge=10)
    assert steps(tmp_path) == {".": {"probe": [0, 15, 25]}}


def test_a_log_that_was_written_anew_keeps_no_old_steps(tmp_path: Path) -> None:
    log(tmp_path, [0, 10, 20])
    index = Index(str(tmp_path))
    index.refresh()
    (file,) = tmp_path.glob("events*")
    log(tmp_path / "other", [7])
    (shorter,) = (tmp_path / "other").glob("events*")
    shorter.replace(file)
    index.refresh()
    assert index.steps()["."] == {"probe": [7]}


def test_a_version_changes_when_old_steps_do(tmp_path: Path) -> None:
    index, seen = Index(str(tmp_path)), []

    def look() -> None:
        index.refresh()
        seen.append(index.versions()["run"])

    log(tmp_path / "run", [0, 10])
    look()
    look()
    log(tmp_path / "run", [20])
    look()
    assert len(set(seen)) == 1, "more steps do not change the earlier ones"
    log(tmp_path / "run", [15], purge=11)  # a resumed run
    look()
    log(tmp_path / "run", [15])
    look()
    shutil.rmtree(tmp_path / "run")
    log(tmp_path / "run", [0, 10])
    look()
    assert len(set(seen)) == 4


def test_routes_serve_what_was_logged_and_nothing_else(tmp_path: Path) -> None:
    log(tmp_path / "run", [3, 4])
    get = served(tmp_path)
    assert json.loads(get("/runs")[1])["steps"] == {"run": {"probe": [3, 4]}}
    header, maps = framed(get("/maps", run="run", tag="probe", step="3")[1])
    logged = encode(MAPS, TOKENS)
    assert header == json.loads(logged[0]) and maps == logged[1]
    header, values = framed(get("/scores", run="run", tag="probe")[1])
    (columns,) = header["columns"]
    assert header["steps"] == [3, 4] and header["kinds"] == [0, 0] and columns["heads"] == [2]
    table = np.frombuffer(values, "<f4").reshape(2, len(columns["names"]), 2)
    assert (table[:, columns["names"].index("entropy")] == 0).all()
    assert np.isnan(table[:, columns["names"].index("continues repeats")]).all()
    for wrong in [{"run": "../run"}, {"tag": "loss"}, {"step": "5"}, {"step": "x"}, {"run": ""}]:
        assert get("/maps", **{"run": "run", "tag": "probe", "step": "3", **wrong})[0] == 404
    assert get("/maps")[0] == get("/scores", run="other", tag="probe")[0] == 404
    shutil.rmtree(tmp_path / "run")
    assert get("/maps", run="run", tag="probe", step="3")[0] == 404


def test_named_log_folders(tmp_path: Path) -> None:
    for name in ("one", "two/below", "c"):
        log(tmp_path / name, [0])
    spec = f"mine:{tmp_path / 'one'},yours:{tmp_path / 'two'},{tmp_path / 'c'}"
    plugin = AttentionPlugin(TBContext(logdir="", flags=Namespace(logdir_spec=spec)))
    found = json.loads(Client(plugin.get_plugin_apps()["/runs"]).get().data)
    assert {*found["steps"]} == {"mine", "yours/below", str(tmp_path / "c")}


@pytest.mark.parametrize("logdir", ["", "nowhere"])
def test_without_a_log_the_tab_is_inactive(logdir: str) -> None:
    assert not AttentionPlugin(TBContext(logdir=logdir)).is_active()


def test_nothing_imports_torch() -> None:
    code = """if True:
        import sys, tensorboard_attention.plugin
        sys.exit(bool({"torch", "jaxtyping", "beartype"} & {*sys.modules}))"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def framed(answer: bytes) -> tuple[dict, bytes]:
    (length,) = struct.unpack("<I", answer[:4])
    return json.loads(answer[4 : 4 + length]), answer[4 + length :]


def test_two_distributions_may_have_the_tab(tmp_path: Path) -> None:
    """TensorBoard itself refuses two plugins of one name."""
    log(tmp_path, [5])
    flags = Namespace(logdir=str(tmp_path), samples_per_plugin={}, window_title="", path_prefix="")
    for tabs, expected in (([AttentionLoader] * 2, None), ([AttentionPlugin] * 2, "Duplicate")):
        with nullcontext() if expected is None else pytest.raises(ValueError, match=expected):
            app = TensorBoardWSGIApp(flags, tabs, None)
    answer = Client(app).get("/data/plugin/attention/runs")
    assert answer.get_json()["steps"] == {".": {"probe": [5]}}
