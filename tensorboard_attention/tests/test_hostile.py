"""A log may come from anywhere. Whatever it holds is shown, or skipped with a note: no request
fails, waits, or takes much memory, and nothing is read twice."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from tensorboard_attention import encode
from tensorboard_attention.index import Index
from tensorboard_attention.plugin import AttentionPlugin
from tensorboard_attention.tests.conftest import served
from tensorboard_attention.tests.events import (
    HEADER,
    LOGGED,
    MAPS,
    NAME,
    TOKENS,
    event,
    framed,
    head,
    look,
    write,
)

TWO_LAYERS = json.loads(encode(2 * MAPS, TOKENS)[0])


def counted(file: str, name: str) -> int:
    """A number that Linux keeps of this process."""
    lines = Path(f"/proc/self/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


@pytest.mark.skipif(sys.platform != "linux", reason="counts what Linux counts")
def test_a_huge_record_is_skipped(tmp_path: Path) -> None:
    """Also one that is longer than the file, with damage after it, and 10 GB of nothing."""
    path = write(tmp_path / "run", event(1))
    with path.open("ab") as file:
        file.write(head(3 * 2**30))
        file.truncate(file.tell() + 3 * 2**30 + 4)
        file.seek(0, os.SEEK_END)
        file.write(framed(event(2)))
    path = write(tmp_path / "unfinished", event(4))
    with path.open("ab") as file:
        file.write(head(2**62))
        file.truncate(2**33)
    (tmp_path / "nothing").mkdir()
    with (tmp_path / "nothing" / NAME).open("wb") as file:
        file.truncate(10**10)
    with (write(tmp_path / "damaged", event(5))).open("ab") as file:
        file.write(b"\0\0\0\4\0\0\0\0")
        file.truncate(2**33)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the largest memory so far
    before = counted("status", "VmHWM")
    get = served(tmp_path)
    found = json.loads(get("/runs")[1])
    assert counted("status", "VmHWM") - before < 500e3
    before = counted("io", "rchar")
    get("/runs")
    assert counted("io", "rchar") - before < 1e6, "what has not changed is read again"
    expected = {"damaged": [5], "run": [1, 2], "unfinished": [4]}
    assert found["steps"] == {run: {"probe": steps} for run, steps in expected.items()}
    assert [note.partition("/")[0] for note in found["notes"]] == ["damaged", "nothing", "run"]
    assert "it has more than 64 MB" in found["notes"][2]


def test_records_are_read_once_they_are_whole(tmp_path: Path) -> None:
    """Those that are being written are no error; damage is, until it is mended."""
    path = write(tmp_path, event(1), event(2))
    whole = path.read_bytes()
    half = len(whole) // 2
    index = Index(str(tmp_path))
    damage = f"{NAME}: is not read: it is damaged after {half:,} bytes"
    cut = [whole[:size] for size in range(half, len(whole), 7)]
    for data in (*cut, whole[:half] + bytes(half)):
        path.write_bytes(data)
        assert index.refresh() and index.steps() == {".": {"probe": [1]}}
        assert index.notes() == ([] if data in cut else [damage])
    path.write_bytes(whole)
    assert index.refresh()
    assert index.steps() == {".": {"probe": [1, 2]}} and index.notes() == []


def test_damaged_data_hides_no_other_record(tmp_path: Path) -> None:
    write(tmp_path, event(1), b"\x2a\xff", b"\x0b", b"\xff" * 20, event(2))
    found = look(tmp_path)
    assert found["steps"] == {".": {"probe": [1, 2]}}
    assert len(found["notes"]) == 3


@pytest.mark.parametrize(
    "header",
    [
        {name: HEADER[name] for name in HEADER if name != "tokens"},
        {**HEADER, "version": 2},
        {**HEADER, "heads": [4, -2]},
        {**HEADER, "heads": [200_000_000], "scores": {}},
        {**HEADER, "scores": {"a": [[1, 2, 3]]}},
        {**HEADER, "scores": {"a": [[1, 10**400]]}},
        {**HEADER, "tokens": ["x" * 5_000_000, "b", "c"]},
        {**HEADER, "tokens": []},
        {**HEADER, "of a later version": [{"a": float("-inf")}]},
        {**HEADER, "not_finite": True},
        {**HEADER, "counts": {"entropy": "3"}},
        {**HEADER, "details": [["x"]]},
        {**HEADER, "wiring": [[1, 1, 0, 0, 1]]},
        {**TWO_LAYERS, "wiring": [[1, 1, 2, 0, 1, 0.5]]},
        {**HEADER, "scores": {"a": [[1, 1e300]]}},
        {**TWO_LAYERS, "losses": [1.0]},
        b"[" * 100_000,
        b"\xff\xfe",
    ],
    ids=lambda header: str(header)[:60],
)
def test_a_step_with_another_header_is_skipped(tmp_path: Path, header: Any) -> None:
    """The steps before and after it are shown."""
    write(tmp_path, event(1), event(2, header), event(3))
    get = served(tmp_path)
    found = json.loads(get("/runs")[1])
    assert found["steps"] == {".": {"probe": [1, 3]}}
    (note,) = found["notes"]
    assert note.startswith(f"{NAME}: step 2 of 'probe' is skipped: ")
    query = {"run": ".", "tag": "probe", "step": "2"}
    assert get("/maps", **query)[0] == 404
    status, scores = get("/scores", **query)
    assert status == 200 and len(scores) < 1000


@pytest.mark.parametrize("others", [(event(3, {**HEADER, "tokens": ["x", "y", "z"]}),), ()])
def test_maps_are_not_those_of_another_log_in_the_same_file(
    tmp_path: Path, others: tuple[bytes, ...]
) -> None:
    index = Index(str(tmp_path))
    write(tmp_path / "run", event(3))
    index.refresh()
    assert index.maps("run", "probe", 3) == (json.dumps(HEADER).encode(), LOGGED[1])
    write(tmp_path / "run", *others)
    with pytest.raises(ValueError, match="the file has"):
        index.maps("run", "probe", 3)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no such files")
def test_what_is_not_a_file_is_not_opened(tmp_path: Path) -> None:
    path = write(tmp_path / "run", event(3))
    os.mkfifo(path.with_suffix(".2"))
    path.with_suffix(".3").mkdir()
    path.with_suffix(".4").symlink_to("/dev/zero")
    found = look(tmp_path)
    assert found["steps"] == {"run": {"probe": [3]}}
    reason = "is not read: it is not a regular file"
    assert found["notes"] == [f"run/events.out.tfevents.{number}: {reason}" for number in (2, 4)]


def test_more_notes_than_anyone_reads_are_counted_as_one(tmp_path: Path) -> None:
    write(tmp_path / "bad", *(event(step, b"{}") for step in range(200)))
    for run in range(110):
        write(tmp_path / f"{run}", event(0, b"x"))
    found = look(tmp_path)
    assert found["steps"] == {}
    assert len(found["notes"]) == 101 and "more" in found["notes"][-1]
    assert all(note.partition(":")[0].endswith(NAME) for note in found["notes"][:-1])


def test_folders_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest are searched, and those behind links last."""
    logs, disk = tmp_path / "logs", tmp_path / "disk"
    write(logs / "a", event(1))
    write(logs / "a" / "below", event(2))
    write(disk / "far", event(3))
    (logs / "0").symlink_to(disk, target_is_directory=True)
    (disk / "up").symlink_to(logs, target_is_directory=True)
    assert look(logs)["steps"].keys() == {"0/far", "a", "a/below"}
    monkeypatch.setattr("tensorboard_attention.folders.MAX_FOLDERS", 5)
    found = look(logs)
    assert found["steps"].keys() == {"a", "a/below"}
    (note,) = found["notes"]
    assert note.startswith("0 and the folders after it are not searched")


def test_names_that_are_no_text_can_be_asked_for(tmp_path: Path) -> None:
    names = ["\udcff run", "new\nline", "__proto__", "<b>", "\u202e", "%2e"]
    for name in names:
        write(tmp_path / name, event(1))
    write(tmp_path / "tags", event(1, tag=""), event(1, tag="__proto__"))
    get = served(tmp_path)
    found = json.loads(get("/runs")[1])
    assert {*found["steps"]} == {"\\xff run", *names[1:], "tags"}
    assert {*found["steps"]["tags"]} == {"", "__proto__"}
    for run, tags in found["steps"].items():
        assert all(get("/maps", run=run, tag=tag, step="1")[0] == 200 for tag in tags)


def test_what_is_wrong_with_one_run_is_said_of_it_alone(tmp_path: Path) -> None:
    """Whatever it is. Every route answers, for this run with a reason."""
    for run in ("fine", "odd", "without"):
        write(tmp_path / run, event(1))
    (tmp_path / "without" / NAME).write_bytes(bytes(100))
    (tmp_path / "odd" / "live").symlink_to("live")
    (tmp_path / "odd" / "losses.jsonl").write_text('{"unit": NaN}\n')
    get = served(tmp_path)
    status, data = get("/runs")
    found = json.loads(data)
    assert status == 200 and {*found["steps"]} == {"fine", "odd"}
    assert found["notes"] == [
        f"without/{NAME}: is not read: it is damaged after 0 bytes",
        "odd/live: is not read: Too many levels of symbolic links",
    ]
    asked = {"tag": "probe", "step": "1", "run2": "fine", "tag2": "probe", "step2": "1"}
    for route in ("maps", "scores", "twins"):
        for run, wanted in (("fine", 200), ("odd", 200), ("without", 404)):
            assert get(f"/{route}", run=run, **asked)[0] == wanted
    for route in ("follow", "follow/names", "follow/weights", "losses", "evidence"):
        status, data = get(f"/{route}", run="odd", step="1")
        assert status == 404 and data
    assert get("/losses", run="odd") == (404, b"NaN is not a number in JSON")


def test_a_long_log_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in "ab":
        write(tmp_path / run, *map(event, range(3)))
    monkeypatch.setattr("tensorboard_attention.index.SECONDS", 0)
    plugin = AttentionPlugin(TBContext(logdir=str(tmp_path)))
    assert plugin.is_active(), "there may be steps"
    parts: list[dict[str, Any]] = []
    while not parts or not parts[-1]["complete"]:
        parts.append(json.loads(Client(plugin.get_plugin_apps()["/runs"]).get().data))
        assert len(parts) < 20
    assert len(parts) > 2
    assert parts[-1]["steps"] == {"a": {"probe": [0, 1, 2]}, "b": {"probe": [0, 1, 2]}}
    assert parts[-1]["versions"]["a"] == parts[0]["versions"]["a"]


def test_steps_for_which_there_is_no_room_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorboard_attention.index.MEMORY_BYTES", 10_000)
    path = write(tmp_path / "a", *(event(step) for step in range(20)))
    write(tmp_path / "b", event(1))
    index = Index(str(tmp_path))
    index.refresh()
    listed = index.steps()["a"]["probe"]
    assert 2 < len(listed) < 20 and listed == [*range(len(listed))] and "b" not in index.steps()
    assert "more steps than fit" in index.notes()[0]
    path.unlink()
    write(tmp_path / "b", event(1), event(2))  # read only now that there is room
    index.refresh()
    assert index.steps() == {"b": {"probe": [2]}}
