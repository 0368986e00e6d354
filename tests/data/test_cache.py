"""A folder is published completely or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from data.cache import publish
from errors import UserError


def test_the_name_exists_only_once_the_folder_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "new" / "cache" / "entry"
    with publish(target) as folder:
        (folder / "a").write_text("whole")
        assert not target.exists()
    assert (target / "a").read_text() == "whole"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("fault", [ValueError("wrong"), KeyboardInterrupt(), UserError("wrong")])
def test_a_failure_leaves_nothing_and_is_raised_again(tmp_path: Path, fault: BaseException) -> None:
    with pytest.raises(type(fault)), publish(tmp_path / "new" / "cache" / "entry") as folder:
        (folder / "a").write_text("half")
        raise fault
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_existing_files(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "other").write_text("kept")
    with pytest.raises(ValueError), publish(tmp_path / "cache" / "entry"):
        raise ValueError
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["other"]


def test_an_existing_entry_gets_the_new_files(tmp_path: Path) -> None:
    (tmp_path / "entry").mkdir()
    (tmp_path / "entry" / "a").write_text("damaged")
    with publish(tmp_path / "entry") as folder:
        (folder / "a").write_text("whole")
    assert (tmp_path / "entry" / "a").read_text() == "whole"
    assert list(tmp_path.iterdir()) == [tmp_path / "entry"]


def test_a_full_disk_ends_in_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"^cache_dir: cannot write to .*\(No space left[^\n]*$"),
        publish(tmp_path / "cache" / "entry"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder_ends_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"^cache_dir: [^\n]*$"), publish(tmp_path / "cache" / "e"):
        pass
    assert (tmp_path / "cache").read_text() == "a file"
