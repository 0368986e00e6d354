"""Runs in any terminal, in any folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import ROOT, TINY, command, files, succeed

TEXT = "Käse 🧀 und Brot 🍞: „gut“.\n\n"
PROMPT = "Käse 🧀"
TERMINALS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
}
SHOWN = {"ascii": r"K\xe4se \U0001f9c0", "cp1252": r"Käse \U0001f9c0"}
SETTINGS = (
    *(each for each in TINY if not each.startswith(("data.", "tokenizer."))),
    *("data=text", "tokenizer=byte", f"observe.samples.prompt={PROMPT}"),
    f"observe.attention.probe={PROMPT} isst",
)


@pytest.fixture(scope="module")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text in a folder with a name that is not ASCII, and a run on it."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "Bücher").mkdir()
    (folder / "Bücher/text.txt").write_text(TEXT * 500, encoding="utf-8")
    succeed("train", *SETTINGS, "data.path=Bücher", "run_dir=run", cwd=folder)
    return folder


def run_in(terminal: str, script: str, *settings: str, cwd: Path, stdin: str = "") -> str:
    """Run a script that must succeed in a terminal that is not UTF-8, and return its output."""
    done = subprocess.run(
        [sys.executable, str(ROOT / f"{script}.py"), *settings],
        cwd=cwd,
        input=stdin.encode("cp1252" if terminal == "cp1252" else "utf-8"),
        capture_output=True,
        timeout=300,
        env={**os.environ, **TERMINALS[terminal], "PYTHONWARNDEFAULTENCODING": "1"},
    )
    encoding = "cp1252" if terminal == "cp1252" else "ascii"
    errors = done.stderr.decode(encoding)
    assert done.returncode == 0, errors
    # The project opens its files with their encoding, whatever that of the terminal is.
    found = [line for line in errors.splitlines() if "EncodingWarning" in line]
    ours = [line for line in found if line.startswith(str(ROOT)) and "site-packages" not in line]
    assert not ours
    return done.stdout.decode(encoding)


@pytest.mark.parametrize(
    "terminal",
    [each if each == "ascii" else pytest.param(each, marks=pytest.mark.long) for each in TERMINALS],
)
def test_a_run_trains_and_resumes_in_any_terminal(
    text_run: Path, tmp_path: Path, terminal: str
) -> None:
    path = f"data.path={text_run}/Bücher"
    output = run_in(terminal, "train", *SETTINGS, path, "run_dir=run", cwd=tmp_path)
    assert f"Sample:\n\n{SHOWN[terminal]}" in output.replace("\r\n", "\n")
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (
        summary["val_loss"] == json.loads((text_run / "run/summary.json").read_text())["val_loss"]
    )
    settings = yaml.safe_load((tmp_path / "run/config.yaml").read_text(encoding="utf-8"))
    assert settings["observe"]["samples"]["prompt"] == PROMPT
    events = EventAccumulator(str(tmp_path / "run")).Reload()
    (sample,) = events.Tensors("sample/text_summary")[-1].tensor_proto.string_val
    assert PROMPT in sample.decode()
    assert "in " in run_in(terminal, "train", "resume=run", "trainer.max_steps=8", cwd=tmp_path)
    assert "nothing to do" in succeed("train", "resume=run", cwd=tmp_path)


@pytest.mark.long
def test_sampling_in_a_terminal_of_windows(text_run: Path) -> None:
    asked = ("run=run", "interactive=true", "max_new_tokens=1")
    output = run_in("cp1252", "sample", *asked, cwd=text_run, stdin="Käse\n")
    assert output.count("> ") == 2 and "Käse" in output


def test_a_file_called_runs_does_not_matter_elsewhere(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "runs").write_text("mine")
    before = files(here)
    places = (f"run_dir={tmp_path}/run", f"cache_dir={tmp_path}/cache")
    succeed("train", *TINY, *places, cwd=here)
    done = command("train", *TINY, cwd=here)
    assert done.returncode == 2 and done.stderr.startswith("error: runs: is not a folder")
    assert files(here) == before
