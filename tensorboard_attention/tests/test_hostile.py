"""A log may come from anywhere. Whatever it holds is shown, or skipped with a note: no request
fails, waits, or takes much memory, and nothing is read twice."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from tensorboard_attention import encode, folders
from tensorboard_attention.index import Index
from tensorboard_attention.plugin import AttentionPlugin
from tensorboard_attention.records import open_regular, read_event, records
from tensorboard_attention.summary import attention_summary

MAPS = [torch.eye(3)[None, None].repeat(1, 2, 1, 1)]
TOKENS = ["a", "b", "c"]
HEADER = json.loads(encode(MAPS, TOKENS)[0])
NAME = "events.out.tfevents.1"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="counts what Linux counts")


def event(step: int = 0, header: Any = HEADER, tag: str = "probe") -> bytes:
    """An event with these maps; a header is written as JSON unless it is bytes."""
    logged = attention_summary(tag, MAPS, TOKENS)
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    logged.value[0].tensor.string_val[0] = text
    return Event(step=step, summary=logged).SerializeToString()


def framed(data: bytes) -> bytes:
    return head(len(data)) + data + b"...."  # the checksum of the data is not read


def head(length: int) -> bytes:
    size = struct.pack("<Q", length)
    return size + struct.pack("<I", masked_crc32c(size))


def write(folder: Path, *data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(b"".join(map(framed, data)))
    return folder / NAME


def look(logdir: Path) -> dict[str, Any]:
    """What /runs answers."""
    plugin = AttentionPlugin(TBContext(logdir=str(logdir)))
    return json.loads(Client(plugin.get_plugin_apps()["/runs"]).get().data)


LOOK = """if True:
    import json, sys
    from tensorboard.plugins.base_plugin import TBContext
    from werkzeug.test import Client
    from tensorboard_attention.plugin import AttentionPlugin

    def own(file, name):
        lines = open(f"/proc/self/{file}").read().splitlines() if sys.platform == "linux" else []
        return sum(int(line.split()[1]) for line in lines if line.startswith(name))

    plugin = AttentionPlugin(TBContext(logdir=sys.argv[1]))
    apps = plugin.get_plugin_apps()
    for _ in range(100):
        answer = Client(apps["/runs"]).get()
        if answer.json["complete"]:
            break
    before = own("io", "rchar")
    Client(apps["/runs"]).get()
    again = own("io", "rchar") - before
    sizes = [len(answer.data)]
    statuses = [answer.status_code]
    for run, tags in answer.json["steps"].items():
        for tag, steps in tags.items():
            for route in ("/scores", "/maps"):
                query = {"run": run, "tag": tag, "step": steps[-1]}
                got = Client(apps[route]).get(query_string=query)
                statuses.append(got.status_code)
                sizes.append(len(got.data))
    memory = own("status", "VmHWM") * 1024
    print(json.dumps([answer.json, statuses, max(sizes), memory, again]))
"""


def look_alone(logdir: Path) -> dict[str, Any]:
    """The same from a process of its own, which also asks for all maps and scores. Fails if it
    hangs, an answer is an error, or the limits of memory, answers and repeated reading are
    exceeded."""
    command = [sys.executable, "-c", LOOK, str(logdir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    answer, statuses, size, memory, again = json.loads(done.stdout)
    assert set(statuses) == {200}
    assert size < 64e6 and memory < 500e6
    assert again < 1e6, "what has not changed is read again"
    return answer


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # addresses of sockets are short
    with socket.socket(socket.AF_UNIX) as new:
        new.bind(path.name)
    os.chdir(here)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_circle(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no such files")
@pytest.mark.parametrize("make", [make_pipe, make_socket, make_device, make_circle])
def test_what_is_not_a_file_is_not_opened(tmp_path: Path, make: Any) -> None:
    write(tmp_path / "run", event(3))
    make(tmp_path / "run" / "events.out.tfevents.2")
    (tmp_path / "run" / "events.out.tfevents.3").mkdir()
    found = look_alone(tmp_path)
    assert found["steps"] == {"run": {"probe": [3]}}
    (note,) = found["notes"]
    assert note.startswith("run/events.out.tfevents.2: is not read: ")


def test_maps_that_became_a_pipe_are_not_found(tmp_path: Path) -> None:
    path = write(tmp_path, event(3))
    plugin = AttentionPlugin(TBContext(logdir=str(tmp_path)))
    assert plugin.is_active()
    path.unlink()
    os.mkfifo(path)
    get = Client(plugin.get_plugin_apps()["/maps"]).get
    assert get(query_string={"run": ".", "tag": "probe", "step": "3"}).status_code == 404


@LINUX
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
    found = look_alone(tmp_path)
    expected = {"damaged": [5], "run": [1, 2], "unfinished": [4]}
    assert found["steps"] == {run: {"probe": steps} for run, steps in expected.items()}
    assert [note.partition("events")[0] for note in found["notes"]] == [
        "damaged/",
        "nothing/",
        "run/",
    ]
    assert "it has more than 64 MB" in found["notes"][2]


@LINUX
@pytest.mark.parametrize("part", [b"\x0a\0", b"\x0a\x02\x4a\0", b"\x08\1", b"\x18\1"])
def test_a_record_of_many_parts_is_skipped(tmp_path: Path, part: bytes) -> None:
    """Parsed, empty parts take fifty times their size."""
    inner = part * (60_000_000 // len(part)) + b"\x12\x09attention"
    length = len(inner)
    size = bytes([length >> 7 * i & 127 | (128 if i < 3 else 0) for i in range(4)])
    write(tmp_path, event(1), b"\x2a" + size + inner, event(2), part * (60_000_000 // len(part)), event(3))
    found = look_alone(tmp_path)
    assert found["steps"] == {".": {"probe": [1, 2, 3]}}
    assert len(found["notes"]) == 2
    assert all("it has more than 1,000 parts" in note for note in found["notes"])


ABSURD: dict[str, Any] = {
    "heads": [2e8],
    "many heads": [200_000_000],
    "negative": [4, -2],
    "fractional": [2.5],
    "nested": [[2]],
    "true": [True, True],
    "text": "2",
    "none": None,
    "empty": [],
    "object": {"0": 2},
    "infinite": [1e400],
    "other": [3],
}
WRONG = [None, True, -1, 1.5, "x", [], {}, [None], [[[]]], [1], {"a": 1}, {"a": [[1]]}, 10**400]


@pytest.mark.parametrize(
    "header",
    [
        *({**HEADER, "heads": heads} for heads in ABSURD.values()),
        *(
            {**HEADER, key: value}
            for key in ("tokens", "heads", "causal", "note", "scores", "meanings", "version")
            for value in WRONG
            if not (key == "causal" and value is True)
            and not (key in ("scores", "meanings") and value == {})
            and not (key == "note" and value == "x")
        ),
        *({each: HEADER[each] for each in HEADER if each != key} for key in HEADER),
        *(
            {**HEADER, "scores": {"a": [[1, each]]}}
            for each in WRONG
            if each not in (-1, None, 1.5)
        ),
        {**HEADER, "scores": {"a": [[1, 2, 3]]}},
        {**HEADER, "scores": {"a": [[1, 1e39]]}},
        {**HEADER, "tokens": ["x"] * 10_000},
        {**HEADER, "tokens": ["x" * 5_000_000, "b", "c"]},
        {**HEADER, "scores": {f"{i}": [[0, 0]] for i in range(1_001)}},
        b"[" * 100_000,
        b'{"tokens":' * 100_000,
        b"",
        b"\xff\xfe",
        json.dumps(HEADER).encode("utf-16"),
        json.dumps({**HEADER, "scores": {"a": [[1, float("nan")]]}}).encode(),
        json.dumps({**HEADER, "scores": {"a": [[1, float("inf")]]}}).encode(),
        json.dumps(HEADER).encode()[:-1] + b', "tokens": 3}',
        json.dumps(HEADER).encode().replace(b'"version": 1', b'"version": ' + b"9" * 10_000),
    ],
    ids=lambda header: str(header)[:60],
)
def test_a_header_is_not_believed(tmp_path: Path, header: Any) -> None:
    """A step whose header the page could not show is skipped. Others are shown."""
    write(tmp_path, event(1), event(2, header), event(3))
    plugin = AttentionPlugin(TBContext(logdir=str(tmp_path)))
    apps = plugin.get_plugin_apps()
    found = Client(apps["/runs"]).get().json
    optional = isinstance(header, dict) and {*HEADER} - {*header} <= {"note", "meanings"}
    if optional and {*HEADER} - {*header}:  # older logs lack them
        assert found["steps"] == {".": {"probe": [1, 2, 3]}} and found["notes"] == []
        return
    assert found["steps"] == {".": {"probe": [1, 3]}}
    (note,) = found["notes"]
    assert note.startswith(f"{NAME}: step 2 of 'probe' is skipped: ")
    query = {"run": ".", "tag": "probe", "step": "2"}
    assert Client(apps["/maps"]).get(query_string=query).status_code == 404
    answer = Client(apps["/scores"]).get(query_string=query)
    assert answer.status_code == 200 and len(answer.data) < 1000


def test_a_header_that_changes_after_it_was_checked_is_not_served(tmp_path: Path) -> None:
    path = write(tmp_path, event(1))
    plugin = AttentionPlugin(TBContext(logdir=str(tmp_path)))
    assert plugin.is_active()
    get = Client(plugin.get_plugin_apps()["/maps"]).get
    query = {"run": ".", "tag": "probe", "step": "1"}
    assert get(query_string=query).status_code == 200
    path.write_bytes(path.read_bytes().replace(b'"heads": [2]', b'"heads": [7]'))
    assert get(query_string=query).status_code == 404
    path.write_bytes(path.read_bytes()[:100])
    assert get(query_string=query).status_code == 404


@LINUX
def test_more_notes_than_anyone_reads_are_counted_as_one(tmp_path: Path) -> None:
    write(tmp_path / "bad", *(event(step, b"{}") for step in range(1_000)))
    for run in range(150):
        write(tmp_path / f"{run}", event(0, b"x"))
    found = look_alone(tmp_path)
    assert found["steps"] == {}
    assert len(found["notes"]) == 101 and "more" in found["notes"][-1]
    assert all(note.partition(":")[0].endswith(NAME) for note in found["notes"][:-1])


@LINUX
def test_folders_behind_a_link_are_bounded(tmp_path: Path) -> None:
    """The nearest are searched, and other links still are. Links inside are links as well."""
    huge, disk, logs = tmp_path / "huge", tmp_path / "disk", tmp_path / "logs"
    for i in range(100):
        (huge / f"{i:03}").mkdir(parents=True)
        for j in range(60):
            (huge / f"{i:03}" / f"{j}").mkdir()
    write(huge, event(1))
    write(huge / "000", event(2))
    write(huge / "099" / "59" / "far", event(3))
    for run in range(20):
        write(disk / f"{run}" / "tensorboard", event(run))
    write(logs / "here", event(4))
    (logs / "a").symlink_to(huge, target_is_directory=True)
    (logs / "b").symlink_to(disk, target_is_directory=True)
    (disk / "up").symlink_to(logs, target_is_directory=True)
    found = look_alone(logs)
    assert {name: steps["probe"] for name, steps in found["steps"].items()} == {
        "a": [1],
        "a/000": [2],
        "here": [4],
        **{f"b/{run}/tensorboard": [run] for run in range(20)},
    }
    (note,) = found["notes"]
    assert note.startswith(f"a: has more than {folders.MOST_BEHIND_LINK:,} folders; a/0")


def test_a_folder_of_links_to_files_is_a_run(tmp_path: Path) -> None:
    path = write(tmp_path / "runs" / "first", event(1))
    (tmp_path / "runs" / "latest").mkdir()
    (tmp_path / "runs" / "latest" / NAME).symlink_to(path)
    found = look(tmp_path / "runs")
    assert found["steps"] == {"first": {"probe": [1]}, "latest": {"probe": [1]}}
    assert found["notes"] == []


def test_deep_folders_are_bounded(tmp_path: Path) -> None:
    """Deeper than the system's longest path."""
    write(tmp_path / "run", event(1))
    here = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(30):
            Path("d" * 200).mkdir()
            os.chdir("d" * 200)
        found = look(tmp_path)
    finally:
        os.chdir(here)
    assert found["steps"] == {"run": {"probe": [1]}}
    assert len(found["notes"]) == 1 and "path is too long" in found["notes"][0]
    subprocess.run(["rm", "-r", str(tmp_path / ("d" * 200))], check=True)


def test_names_that_are_no_text_can_be_asked_for(tmp_path: Path) -> None:
    names = ["\udcff run", "new\nline", "__proto__", "<b>", "\u202e", "%2e"]
    for name in names:
        write(tmp_path / name, event(1))
    write(tmp_path / "tags", event(1, tag=""), event(1, tag="__proto__"), event(2, tag="x" * 501))
    found = look_alone(tmp_path)
    assert {*found["steps"]} == {"\\xff run", *names[1:], "tags"}
    assert {*found["steps"]["tags"]} == {"", "__proto__"}
    assert "its tag has more than 500 characters" in found["notes"][0]


def test_steps_are_integers_that_javascript_has(tmp_path: Path) -> None:
    write(tmp_path, *(event(step) for step in (-(2**63), -5, 0, 2**53 - 1, 2**53, 2**63 - 1)))
    found = look(tmp_path)
    assert found["steps"] == {".": {"probe": [-5, 0, 2**53 - 1]}}
    assert len(found["notes"]) == 3


def test_an_incomplete_record_is_not_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, event(1), event(2))
    whole = path.read_bytes()
    index = Index(str(tmp_path))
    for size in range(len(whole) // 2, len(whole) + 1, 7):
        path.write_bytes(whole[:size])
        assert index.refresh()
        assert index.steps() == {".": {"probe": [1]}} and index.notes() == []
    path.write_bytes(whole)
    assert index.refresh()
    assert index.steps() == {".": {"probe": [1, 2]}}


def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, *(event(step, HEADER | {"note": "x" * 100_000}) for step in range(5)))
    with open_regular(path) as file:
        found = records(file, 0)
        next(found)
        os.truncate(path, 150_000)
        assert [*found] == []


def test_damage_that_is_mended_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, event(1), event(2))
    whole = path.read_bytes()
    half = len(whole) // 2
    index = Index(str(tmp_path))
    path.write_bytes(whole[:half] + bytes(len(whole) - half))
    assert index.refresh() and index.steps() == {".": {"probe": [1]}}
    assert index.notes() == [f"{NAME}: is damaged after {half} bytes; the rest is not read"]
    path.write_bytes(whole)
    assert index.refresh() and index.steps() == {".": {"probe": [1, 2]}}
    assert index.notes() == []


def test_damaged_data_hides_no_other_record(tmp_path: Path) -> None:
    write(tmp_path, event(1), b"\x2a\xff", b"\x0b", b"\xff" * 20, event(2))
    found = look(tmp_path)
    assert found["steps"] == {".": {"probe": [1, 2]}}
    assert len(found["notes"]) == 3


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that every user may look into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no such permissions")
def test_what_may_not_be_read_is_noted(readable: Path) -> None:
    write(readable / "run", event(1))
    secret = write(readable / "secret", event(2))
    write(readable / "closed", event(3))
    secret.chmod(0)
    (readable / "closed").chmod(0)
    root = os.geteuid() == 0
    index = Index(str(readable))
    if root:
        os.seteuid(65534)
    try:
        assert index.refresh()
    finally:
        if root:
            os.seteuid(0)
    assert index.steps() == {"run": {"probe": [1]}}
    assert index.notes() == [
        f"secret/{NAME}: is not read: Permission denied",
        "closed: cannot be read: Permission denied",
    ]
    (readable / "closed").chmod(stat.S_IRWXU)
    secret.chmod(stat.S_IRWXU)
    assert index.refresh() and index.notes() == []
    assert {*index.steps()} == {"closed", "run", "secret"}


def test_a_long_log_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in "ab":
        write(tmp_path / run, *map(event, range(3)))
    monkeypatch.setattr("tensorboard_attention.run.SECONDS", 0)
    plugin = AttentionPlugin(TBContext(logdir=str(tmp_path)))
    assert plugin.is_active(), "there may be steps"
    parts = []
    while not parts or not parts[-1]["complete"]:
        parts.append(Client(plugin.get_plugin_apps()["/runs"]).get().json)
        assert len(parts) < 20
    assert len(parts) > 2
    assert parts[-1]["steps"] == {"a": {"probe": [0, 1, 2]}, "b": {"probe": [0, 1, 2]}}
    assert parts[-1]["versions"]["a"] == parts[0]["versions"]["a"]


@LINUX
@pytest.mark.long
def test_a_million_steps(tmp_path: Path) -> None:
    """As many as fit are listed."""
    logged = attention_summary("probe", [torch.ones(1, 1, 1, 1)], ["a"])
    with (tmp_path / NAME).open("wb") as file:
        for step in range(1_000_000):
            file.write(framed(Event(step=step, summary=logged).SerializeToString()))
    found = look_alone(tmp_path)
    assert len(found["steps"]["."]["probe"]) > 200_000
    assert "the log has more steps than fit into 150 MB" in found["notes"][0]


def test_steps_for_which_there_is_no_room_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorboard_attention.index.ROOM", 10_000)
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


def test_curves_of_too_many_scores_have_fewer_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *(event(step) for step in range(10)))
    index = Index(str(tmp_path))
    index.refresh()
    header, values = index.scores(".", "probe")
    assert header["steps"] == [*range(10)]
    monkeypatch.setattr("tensorboard_attention.index.MOST_CURVES", len(values) // 2 - 1)
    fewer, some = index.scores(".", "probe")
    assert fewer["steps"] == [0, 3, 6, 9]
    rows = np.frombuffer(values, np.uint8).reshape(10, -1)
    assert some == rows[::3].tobytes()


def test_scores_are_found_by_name(tmp_path: Path) -> None:
    """Of steps with other names, another order, or other heads."""
    scores = [
        ([2], {"a": [[1, 2]], "b": [[3, 4]]}),
        ([2], {"b": [[5, None]]}),
        ([1], {"b": [[6]], "a": [[7]]}),
        ([2], {"b": [[8, 9]], "a": [[10, 11]]}),
    ]
    headers = [HEADER | {"heads": heads, "scores": found} for heads, found in scores]
    write(tmp_path, *(event(step, header) for step, header in enumerate(headers)))
    index = Index(str(tmp_path))
    index.refresh()
    header, values = index.scores(".", "probe")
    assert header == {"names": ("b", "a"), "steps": [0, 1, 2, 3], "heads": (2,)}
    none = np.nan
    np.testing.assert_array_equal(
        np.frombuffer(values, "<f4").reshape(4, 4),
        [[3, 4, 1, 2], [5, none, none, none], [none] * 4, [8, 9, 10, 11]],
    )


@given(
    step=st.integers(-(2**63), 2**63 - 1),
    status=st.none() | st.integers(0, 3),
    values=st.lists(
        st.tuples(
            st.text(),
            st.sampled_from(["attention", "scalars", ""]),
            st.lists(st.binary(), max_size=3),
            st.none() | st.floats(width=32),
        ),
        max_size=4,
    ),
)
def test_events_are_read_as_protobuf_reads_them(
    step: int, status: int | None, values: list[tuple[str, str, list[bytes], float | None]]
) -> None:
    summary = Summary()
    for tag, plugin, strings, simple in values:
        metadata = SummaryMetadata(plugin_data={"plugin_name": plugin}, display_name="attention")
        value = summary.value.add(tag=tag, metadata=metadata)
        value.tensor.string_val.extend(strings)
        value.tensor.dtype = 7
        if simple is not None:
            value.simple_value = simple
            value.tensor.string_val.extend(strings)
    logged = Event(wall_time=1.5, step=step, file_version="brain.Event:2")
    if status is not None:
        logged.session_log.status = status
    else:
        logged.summary.CopyFrom(summary)
    data = logged.SerializeToString()
    again = Event.FromString(data)
    found = read_event(data)
    assert found.step == again.step
    assert found.restarts == (again.session_log.status == SessionLog.START)
    assert [(tag, [data[slice(*span)] for span in spans]) for tag, spans in found.values] == [
        (value.tag, [*value.tensor.string_val])
        for value in again.summary.value
        if value.metadata.plugin_data.plugin_name == "attention"
    ]


@given(data=st.binary(max_size=300))
def test_bytes_that_are_no_event_are_an_event_or_an_error(data: bytes) -> None:
    try:
        found = read_event(data)
    except ValueError:
        return
    for _, spans in found.values:
        assert all(0 <= start <= end <= len(data) for start, end in spans)
