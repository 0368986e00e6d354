"""What the tab's server reads of a run that a page can follow, and what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from tensorboard_attention.limits import RECORD_BYTES
from tensorboard_attention.plugin import AttentionPlugin
from tensorboard_attention.tests.conftest import Get, log, served


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """The folder of the weights of a run, with two steps."""
    log(tmp_path / "logs/run", 0)
    folder = tmp_path / "logs/run/live"
    folder.mkdir()
    (folder / "model.json").write_text("{}")
    for step in (0, 100):
        (folder / f"{step}.bin").write_bytes(b"%d" % step)
    return folder


@pytest.fixture
def get(live: Path) -> Get:
    return served(live.parents[1])


def steps(get: Get) -> dict[str, str]:
    return json.loads(get("/follow/steps", run="run")[1])


def test_steps_and_their_weights(live: Path, get: Get) -> None:
    assert [*steps(get)] == ["0", "100"]
    assert get("/follow/weights", run="run", step="100") == (200, b"100")
    before = steps(get)
    new = live / "new"
    new.write_bytes(b"other")
    new.replace(live / "100.bin")
    after = steps(get)
    assert after["0"] == before["0"] and after["100"] != before["100"]
    (live / "0.bin").unlink()
    assert [*steps(get)] == ["100"]


def test_a_run_is_found_when_nothing_was_read_before(live: Path) -> None:
    """TensorBoard was started again, and only the page asks, not the tab."""
    routes = AttentionPlugin(TBContext(logdir=str(live.parents[1]))).get_plugin_apps()
    asked = Client(routes["/follow/weights"])
    assert asked.get(query_string={"run": "run", "step": "100"}).status_code == 200
    answer = asked.get(query_string={"run": "other", "step": "100"})
    assert (answer.status_code, answer.text) == (404, "there is no such run, tag or step")


def test_only_weights_of_a_known_run_are_served(live: Path, get: Get) -> None:
    (live / "secret").write_bytes(b"secret")
    (live / ".200.bin").write_bytes(b"half")  # another process writes it
    for name in ("-1.bin", "01.bin", "\uff11.bin", f"{10**13}.bin"):
        (live / name).write_bytes(b"odd")
    assert [*steps(get)] == ["0", "100"]
    for step in ("", "x", "7", "../100", "100.bin", "secret", "1" * 300, "9" * 5000, "0\0"):
        assert get("/follow/weights", run="run", step=step)[0] == 404, step
    for run in ("", ".", "..", "run/live", "../logs/run", "run\0", str(live.parent)):
        assert get("/follow/weights", run=run, step="0")[0] == 404, run
        assert get("/follow/steps", run=run)[0] == 404, run
        assert get("/follow", run=run)[0] == 404, run
    for route in ("/follow", "/follow/steps", "/follow/names", "/follow/weights"):
        assert get(route)[0] == 404


def link(path: Path) -> None:
    path.symlink_to(path.with_name("0.bin"))


@pytest.mark.parametrize("make", [link, Path.mkdir, getattr(os, "mkfifo", Path.mkdir)])
def test_what_is_no_file_of_the_run_is_refused(
    live: Path, get: Get, make: Callable[[Path], None]
) -> None:
    (live / "100.bin").unlink()
    make(live / "100.bin")
    assert get("/follow/weights", run="run", step="100")[0] == 404
    assert [*steps(get)] == ["0"]


def test_weights_that_are_too_large_are_refused(live: Path, get: Get) -> None:
    os.truncate(live / "100.bin", RECORD_BYTES + 1)
    assert get("/follow/weights", run="run", step="100")[0] == 404


NAME = ["copies 61%", "copies", "copies 61% here", "", 0.5]


def test_names_are_served_as_they_are_written(live: Path, get: Get) -> None:
    assert get("/follow/names", run="run")[0] == 404
    for names in ({}, {"0": [[NAME, NAME], [NAME]], "100": []}):
        (live / "names.json").write_text(json.dumps(names))
        status, found = get("/follow/names", run="run")
        assert status == 200 and json.loads(found) == names
    assert get("/follow/names", run="other")[0] == 404


@pytest.mark.parametrize(
    "found",
    [
        "{",
        "\udcff",
        json.dumps({"0": [[NAME[:4]]]}),
        json.dumps({"0": [[[*NAME[:4], True]]]}),
    ],
    ids=lambda text: text[:50],
)
def test_names_in_another_format_are_refused(live: Path, get: Get, found: str) -> None:
    (live / "names.json").write_text(found, errors="surrogateescape")
    status, reason = get("/follow/names", run="run")
    assert status == 404 and reason
    assert get("/follow/weights", run="run", step="0")[0] == 200


def test_a_folder_elsewhere_is_not_read(live: Path, get: Get) -> None:
    elsewhere = live.rename(live.parents[2] / "elsewhere")
    live.symlink_to(elsewhere)
    assert steps(get) == {} and get("/follow/weights", run="run", step="0")[0] == 404
    assert get("/follow", run="run")[0] == get("/follow/names", run="run")[0] == 404
    assert "run" not in json.loads(get("/runs")[1])["followed"]
