"""Records are read as they are written, and whatever else is in a file is passed over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata

from tensorboard_attention.index import Index
from tensorboard_attention.records import open_regular, read_event, records
from tensorboard_attention.tests.events import (
    HEADER,
    LINUX,
    NAME,
    event,
    framed,
    head,
    look,
    look_alone,
    write,
)


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
    write(
        tmp_path,
        event(1),
        b"\x2a" + size + inner,
        event(2),
        part * (60_000_000 // len(part)),
        event(3),
    )
    found = look_alone(tmp_path)
    assert found["steps"] == {".": {"probe": [1, 2, 3]}}
    assert len(found["notes"]) == 2
    assert all("it has more than 1,000 parts" in note for note in found["notes"])


def test_steps_are_integers_that_javascript_has(tmp_path: Path) -> None:
    write(tmp_path, *(event(step) for step in (-(2**63), -5, 0, 2**53 - 1, 2**53, 2**63 - 1)))
    found = look(tmp_path)
    assert found["steps"] == {".": {"probe": [-5, 0, 2**53 - 1]}}
    assert len(found["notes"]) == 3


def test_an_incomplete_record_is_not_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, event(1), event(2))
    whole = path.read_bytes()
    index = Index(str(tmp_path))
    for size in range(len(whole) // 2, len(whole), 7):
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
    assert index.notes() == [f"{NAME}: is damaged after {half:,} bytes; the rest is not read"]
    path.write_bytes(whole)
    assert index.refresh() and index.steps() == {".": {"probe": [1, 2]}}
    assert index.notes() == []


def test_damaged_data_hides_no_other_record(tmp_path: Path) -> None:
    write(tmp_path, event(1), b"\x2a\xff", b"\x0b", b"\xff" * 20, event(2))
    found = look(tmp_path)
    assert found["steps"] == {".": {"probe": [1, 2]}}
    assert len(found["notes"]) == 3


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
