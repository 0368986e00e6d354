"""One headless Chromium for all tests of a process: to start it takes longer than most of them."""

from __future__ import annotations

import shutil
from functools import cache

import pytest
from playwright import sync_api

PATH = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@cache
def chromium() -> sync_api.Browser:
    """It ends with the process. Skips the test where none is installed."""
    if PATH is None:
        pytest.skip("no Chromium is installed")
    return sync_api.sync_playwright().start().chromium.launch(executable_path=PATH, args=FLAGS)
