"""The index finds every logged step, whatever state the files are in, and serves nothing else."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from argparse import Namespace
from datetime import datetime
from pathlib import Path

import pytest
from tensorboard.backend.application import TensorBoardWSGIApp
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.base_plugin import TBContext
from torch.utils.tensorboard import SummaryWriter
from werkzeug.test import Client

from tensorboard_attention import encode
from tensorboard_attention.index import Index
from tensorboard_attention.plugin import AttentionLoader, AttentionPlugin
from tensorboard_attention.tests.conftest import TEXT, causal_maps, log, served
from tensorboard_attention.tests.events import event, look, write


def test_every_step_of_every_run_is_found(tmp_path: Path) -> None:
    """Also of a run with more steps than TensorBoard's memory keeps, and behind links once."""
    log(tmp_path, 5)
    log(tmp_path / "sweep" / "0", *range(12))
    (tmp_path / "none").mkdir()
    SummaryWriter(str(tmp_path / "scalars")).close()
    (tmp_path / "latest").symlink_to("sweep", target_is_directory=True)
    (tmp_path / "sweep" / "around").symlink_to("..", target_is_directory=True)
    index = Index(str(tmp_path))
    index.refresh()
    assert index.steps() == {".": {"probe": [5]}, "sweep/0": {"probe": [*range(12)]}}


def test_a_version_changes_when_old_steps_do(tmp_path: Path) -> None:
    index, seen = Index(str(tmp_path)), []

    def shows(*steps: int) -> None:
        index.refresh()
        assert index.steps() == {"run": {"probe": [*steps]}}
        seen.append(index.versions()["run"])

    log(tmp_path / "run", 0, 10)
    shows(0, 10)
    shows(0, 10)
    log(tmp_path / "run", 20)
    shows(0, 10, 20)
    assert len(set(seen)) == 1, "more steps do not change the earlier ones"
    log(tmp_path / "run", 15, purge_step=10)  # a resumed run
    shows(0, 15)
    log(tmp_path / "run", 15)
    shows(0, 15)
    shutil.rmtree(tmp_path / "run")
    log(tmp_path / "run", 0)  # written anew
    shows(0)
    assert len(set(seen)) == 4


def test_routes_serve_what_was_logged_and_nothing_else(tmp_path: Path) -> None:
    log(tmp_path / "run", 3, 4)
    get = served(tmp_path)
    assert json.loads(get("/runs")[1])["steps"] == {"run": {"probe": [3, 4]}}
    answer = get("/maps", run="run", tag="probe", step="3")[1]
    (length,) = struct.unpack("<I", answer[:4])
    header, maps = encode(causal_maps(3, n=8), TEXT)
    assert json.loads(answer[4 : 4 + length]) == json.loads(header)
    assert answer[4 + length :] == maps
    for wrong in [{"run": "../run"}, {"tag": "loss"}, {"step": "5"}, {"step": "x"}, {"run": ""}]:
        assert get("/maps", **{"run": "run", "tag": "probe", "step": "3", **wrong})[0] == 404
    assert get("/maps")[0] == get("/scores", run="other", tag="probe")[0] == 404
    shutil.rmtree(tmp_path / "run")
    assert get("/maps", run="run", tag="probe", step="3")[0] == 404


def test_it_opens_on_the_longest_run_of_the_newest_day(tmp_path: Path) -> None:
    """Of equal ones, on the newest."""

    def write_run(name: str, last: int, wall_time: float) -> None:
        data = Event.FromString(event(last))
        data.wall_time = wall_time
        write(tmp_path / name, data.SerializeToString())

    noon = datetime(2026, 3, 1, 12).timestamp()
    assert look(tmp_path)["first"] is None
    write_run("no time", 9000, float("nan"))
    write_run("yesterday", 5000, noon - 86_400)
    write_run("long", 500, noon)
    write_run("short", 20, noon + 60)
    assert look(tmp_path)["first"] == "long"
    write_run("as long", 500, noon + 30)
    assert look(tmp_path)["first"] == "as long"


def test_named_log_folders(tmp_path: Path) -> None:
    for name in ("one", "two/below", "c"):
        log(tmp_path / name, 0)
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


def test_two_distributions_may_have_the_tab(tmp_path: Path) -> None:
    """TensorBoard itself refuses two plugins of one name."""
    log(tmp_path, 5)
    flags = Namespace(logdir=str(tmp_path), samples_per_plugin={}, window_title="", path_prefix="")
    app = TensorBoardWSGIApp(flags, [AttentionLoader] * 2, None)
    answer = Client(app).get("/data/plugin/attention/runs")
    assert answer.get_json()["steps"] == {".": {"probe": [5]}}
