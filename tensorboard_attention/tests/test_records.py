"""Records are read as they are written, and whatever else is in a file is passed over."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tensorboard_attention.index import Index
from tensorboard_attention.tests.conftest import served
from tensorboard_attention.tests.events import NAME, event, framed, head, look, write


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
    assert [note.partition("events")[0] for note in found["notes"]] == [
        "damaged/",
        "nothing/",
        "run/",
    ]
    assert "it has more than 64 MB" in found["notes"][2]


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


def test_damage_that_is_mended_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, event(1), event(2))
    whole = path.read_bytes()
    half = len(whole) // 2
    index = Index(str(tmp_path))
    path.write_bytes(whole[:half] + bytes(len(whole) - half))
    assert index.refresh() and index.steps() == {".": {"probe": [1]}}
    assert index.notes() == [f"{NAME}: is not read: it is damaged after {half:,} bytes"]
    path.write_bytes(whole)
    assert index.refresh() and index.steps() == {".": {"probe": [1, 2]}}
    assert index.notes() == []


def test_damaged_data_hides_no_other_record(tmp_path: Path) -> None:
    write(tmp_path, event(1), b"\x2a\xff", b"\x0b", b"\xff" * 20, event(2))
    found = look(tmp_path)
    assert found["steps"] == {".": {"probe": [1, 2]}}
    assert len(found["notes"]) == 3
