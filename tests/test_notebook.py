"""The attention notebook runs on any run, and it stores its outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from data.tales import Tales
from launch.schema import preset
from tests.conftest import ROOT

NOTEBOOK = ROOT / "notebooks/attention.ipynb"


def read() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def execute(notebook: nbformat.NotebookNode, folder: Path) -> str:
    """Run every cell in `folder`, and return the printed text."""
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    return "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.fixture(autouse=True)
def jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Jupyter from reading and writing the home directory."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("GLASSGPT_RUN", raising=False)


def test_it_runs_and_its_checks_pass(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSGPT_RUN", str(tiny_run))
    printed = execute(read(), tmp_path)
    assert "2 layers of 2 heads, each 8 wide" in printed
    assert "300 tokens" in printed


@pytest.mark.long
def test_without_a_run_it_trains_one(tmp_path: Path) -> None:
    assert "2 layers of 4 heads" in execute(read(), tmp_path)
    assert not (tmp_path / "runs").exists()


def test_it_is_stored_with_its_outputs() -> None:
    text = NOTEBOOK.read_text()
    assert len(text) < 700_000
    for path in (str(ROOT), str(Path.home()), "/tmp/", "site-packages"):
        assert path not in text
    cells = [cell for cell in read().cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("<iframe" in output.get("data", {}).get("text/html", "") for output in outputs)
    assert all(output.get("name") != "stderr" for output in outputs)
    printed = "".join(each.text for each in outputs if each.output_type == "stream")
    tale = next(Tales(preset("data", "tales")).tales("val")).text
    assert tale in printed.replace("\n", " "), "the outputs are of the former tales"
