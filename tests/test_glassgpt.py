"""The Python face: recipes of the docs, an open run, `import glassgpt` from elsewhere, and the
notebook, which runs on any run and is stored with its outputs."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

import glassgpt
from data.tales import Tales
from launch.schema import preset
from tests.conftest import ROOT, begin, finish, succeed

PAGE = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^## (\d+)\..*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("number", "code"), RECIPES, ids=[number for number, _ in RECIPES])
def test_each_recipe_runs(
    number: str, code: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny)
    exec(compile(code, f"recipe {number}", "exec"), {"__name__": "recipe"})


def test_recipes_are_numbered() -> None:
    assert [int(number) for number, _ in RECIPES] == [*range(1, 13)]


def test_a_sample_is_that_of_the_script(tiny: Path, tiny_run: Path) -> None:
    run = glassgpt.open_run(tiny_run)
    script = succeed("sample", "prompt=Once", "max_new_tokens=9", cwd=tiny)
    assert run.sample("Once", max_new_tokens=9).strip() == script.strip()


def test_a_reading_is_one_forward_pass_and_has_the_edits(tiny_run: Path) -> None:
    run = glassgpt.open_run(tiny_run)
    text = "Once there"
    ids = run.tokenizer.encode_document(text)
    reading = run.read(text)
    with torch.no_grad():
        expected = run.model(torch.tensor([ids]))[0]
    torch.testing.assert_close(reading.logits, expected, atol=1e-5, rtol=0)
    assert "".join(reading.spelled) == "\n\n" + text and reading.tokens.tolist() == ids
    # A head gathers the values that it attends to: context = weights @ values.
    first = reading.contexts[0][:, 0], reading.maps[0][:, 0, 0]
    assert torch.equal(first[1], torch.ones(2)) and first[0].shape == (2, 8)
    with glassgpt.edit(run.model, {(1, 0): torch.zeros_like}):
        edited = run.read(text).logits
    with glassgpt.ablate(run.model, [(1, 0)], "zero"):
        assert torch.equal(edited, run.read(text).logits)
    with pytest.raises(ValueError, match="text: has 0 tokens"):
        run.read("", start="text")
    assert run.read(text, start="text").tokens.tolist() == run.tokenizer.encode(text)


def test_looking_at_a_text_that_does_not_fit(
    tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = glassgpt.open_run(tiny_run)
    n, most = len(run.encode("Once " * 100)), run.config.model.context_length
    glassgpt.look(run, "Once " * 100)
    assert f"Using the first {most} of {n} tokens" in capsys.readouterr().out
    with pytest.raises(ValueError, match="start: 'text': a page begins a text as in training"):
        glassgpt.look(run, "Once", live=True, start="text")
    run.model.bfloat16()
    assert "<script" in glassgpt.look(run, "Once", live=True).page


def test_a_script_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()  # without modules, it hides nothing
    script = tmp_path / "script.py"
    script.write_text("import glassgpt\nprint(glassgpt.open_run.__module__)\n")
    # On the path, as an installation puts it there.
    printed = finish(begin(str(script), cwd=tmp_path, PYTHONPATH=str(ROOT)))
    assert printed == "inference.opening\n"


NOTEBOOK = ROOT / "notebooks/attention.ipynb"


def read_notebook() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def execute(notebook: nbformat.NotebookNode, folder: Path) -> str:
    """Run every cell in `folder`, and return the printed text."""
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    return "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.fixture
def jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Jupyter from reading and writing the home directory."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("GLASSGPT_RUN", raising=False)


@pytest.mark.usefixtures("jupyter")
def test_the_notebook_runs_and_its_checks_pass(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASSGPT_RUN", str(tiny_run))
    printed = execute(read_notebook(), tmp_path)
    assert "2 layers of 2 heads, each 8 wide" in printed
    assert "300 tokens" in printed


@pytest.mark.long
@pytest.mark.usefixtures("jupyter")
def test_without_a_run_the_notebook_trains_one(tmp_path: Path) -> None:
    assert "2 layers of 4 heads" in execute(read_notebook(), tmp_path)
    assert not (tmp_path / "runs").exists()


def test_the_notebook_is_stored_with_its_outputs() -> None:
    text = NOTEBOOK.read_text()
    assert len(text) < 700_000
    for path in (str(ROOT), str(Path.home()), "/tmp/", "site-packages"):
        assert path not in text
    cells = [cell for cell in read_notebook().cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("<iframe" in output.get("data", {}).get("text/html", "") for output in outputs)
    assert all(output.get("name") != "stderr" for output in outputs)
    printed = "".join(each.text for each in outputs if each.output_type == "stream")
    tale = next(Tales(preset("data", "tales")).tales("val")).text
    assert tale in printed.replace("\n", " "), "the outputs are of the former tales"
