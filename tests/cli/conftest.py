"""A trained run with its cache, in a folder of the test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def here(tiny: Path, tiny_run: Path, tmp_path: Path) -> Path:
    """A folder with a copy of a run and its cache."""
    folder = tmp_path / "here"
    shutil.copytree(tiny_run, folder / "run", symlinks=True)
    shutil.copytree(tiny / ".cache", folder / ".cache")
    return folder
