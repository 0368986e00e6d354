"""What the cache adds to `files.replace_folder`: one line for a full disk, and tidiness."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from data.cache import publish, remove_leftovers
from errors import UserError


def test_only_abandoned_temporary_folders_of_shards_are_removed(tmp_path: Path) -> None:
    """Another process may still be writing into one that has just changed."""
    old = {".tokens-a.0123", ".00003-of-00064.0123", ".other.0123", "tokens-a"}
    for name in (*old, ".tokens-b.0123"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.bin").write_text("half")
        if name in old:
            os.utime(tmp_path / name / "train.bin", (0, 0))
        os.utime(tmp_path / name, (0, 0))
    remove_leftovers(tmp_path)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {".tokens-b.0123", ".other.0123", "tokens-a"}


def test_a_file_in_place_of_the_folder_ends_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"^cache_dir: [^\n]*$"), publish(tmp_path / "cache" / "e"):
        pass
    assert (tmp_path / "cache").read_text() == "a file"
