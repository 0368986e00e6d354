"""A run in the cells of a real JupyterLab, in Chromium."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest

from tensorboard_attention.tests.chromium import PATH, chromium
from tests.conftest import ROOT, free_port

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not find_spec("jupyterlab"), reason="needs the extra notebook"),
    pytest.mark.skipif(PATH is None, reason="no Chromium is installed"),
]
CELLS = (
    "import torch\nfrom tensorboard_attention import show\n"
    "show([torch.eye(3).expand(1, 2, 3, 3)], ['a', 'b', 'c'], title='Of any model')",
    "from glassgpt import look, open_run\nopened = open_run('run', 'best')\n"
    "look(opened, 'Once there was a jolly deer.')",
    "look(opened, 'Once there was a jolly deer.', live=True)",
)


@pytest.fixture
def address(tiny_run: Path, tmp_path: Path) -> Iterator[str]:
    """Of a notebook in a running JupyterLab."""
    (tmp_path / "run").symlink_to(tiny_run)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in CELLS])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, tmp_path / "maps.ipynb")
    port = free_port()
    places = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    options = ("--no-browser", "--allow-root", "--IdentityProvider.token=", f"--port={port}")
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options],
        cwd=tmp_path,
        env={**os.environ, **places, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipy")},
    )
    server = f"http://localhost:{port}"
    try:
        while True:
            assert process.poll() is None
            with suppress(OSError), urllib.request.urlopen(f"{server}/api") as answer:
                assert answer.status == 200
                break
            time.sleep(0.2)
        yield f"{server}/lab/tree/maps.ipynb"
    finally:
        process.terminate()
        process.wait(30)


def test_maps_and_the_live_page_are_displayed_in_cells(address: str) -> None:
    page = chromium().new_page(viewport={"width": 1280, "height": 2400})
    page.goto(address)
    page.locator(".jp-Notebook .jp-Cell").nth(2).wait_for(timeout=60_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    frames = [page.frame_locator("iframe[title=Attention]").nth(n) for n in range(3)]
    frames[0].locator("main[data-shown]").wait_for(timeout=120_000)
    assert frames[0].locator("h1").inner_text() == "Of any model"
    frames[1].locator("main[data-shown]").wait_for(timeout=120_000)
    assert "deer" in frames[1].locator(".text").first.inner_text()
    frames[2].locator("main[aria-busy=false]").wait_for(timeout=120_000)
    assert frames[2].locator("textarea").input_value() == "Once there was a jolly deer."
    for frame in frames:
        sizes = frame.locator("html").evaluate("(html) => [html.scrollHeight, innerHeight]")
        assert 0 <= sizes[1] - sizes[0] <= 4
    page.close()
