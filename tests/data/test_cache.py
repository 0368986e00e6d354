"""What the cache adds to `files.replace_folder`: one line for a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import UserError
from data.cache import publish


def test_a_file_in_place_of_the_folder_ends_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"^cache_dir: [^\n]*$"), publish(tmp_path / "cache" / "e"):
        pass
    assert (tmp_path / "cache").read_text() == "a file"
