"""The Python face: recipes of the docs, an open run, and `import glassgpt` from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest
import torch
import yaml

import glassgpt
from inference.opening import OpenRun
from tests.conftest import ROOT, succeed

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
    defaults = yaml.safe_load((ROOT / "configs/sample.yaml").read_text())
    parameters = {**signature(OpenRun.sample).parameters}
    del parameters["self"]
    assert {name: one.default for name, one in parameters.items()}.items() <= defaults.items()


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
    path = {**os.environ, "PYTHONPATH": str(ROOT)}  # as an installation puts it there
    command = [sys.executable, str(script)]
    printed = subprocess.check_output(command, text=True, cwd=tmp_path, env=path)
    assert printed == "inference.opening\n"
