"""Files beside the event files of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorboard_attention.beside import read_beside, version


def test_links_and_what_is_too_large_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (own / "a.json").write_text("[1]")
    (other / "a.json").symlink_to(own / "a.json")
    assert version(own, "a.json") and version(other, "a.json") is None
    assert read_beside(own, "a.json", lambda found: None) == [1]
    with pytest.raises(OSError, match="there is no such file"):
        read_beside(other, "a.json", lambda found: None)
    monkeypatch.setattr("tensorboard_attention.beside.RECORD_BYTES", 2)
    with pytest.raises(ValueError, match="too large"):
        read_beside(own, "a.json", lambda found: None)
