"""Runs in any terminal, in any folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import ROOT, TINY, command, files, last_step, succeed

TEXT = "Käse 🧀 und Brot 🍞: „gut“.\n\n"
PROMPT = "Käse 🧀"
TERMINALS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}
SHOWN = {"ascii": r"K\xe4se \U0001f9c0", "cp1252": r"Käse \U0001f9c0", "C": r"K\xe4se \U0001f9c0"}
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


@pytest.fixture
def copied(text_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(text_run, tmp_path / "here", symlinks=True)
    return tmp_path / "here"


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
@pytest.mark.parametrize("terminal", TERMINALS)
def test_sampling_in_any_terminal(copied: Path, terminal: str) -> None:
    greedy = ("temperature=0", "max_new_tokens=20")
    output = run_in(terminal, "sample", f"prompt={PROMPT}", "run=run", *greedy, cwd=copied)
    expected = succeed("sample", f"prompt={PROMPT}", "run=run", *greedy, cwd=copied)
    encoding = "cp1252" if terminal == "cp1252" else "ascii"
    assert output == expected.encode(encoding, "backslashreplace").decode(encoding)
    asked = ("run=run", "interactive=true", "max_new_tokens=1")
    output = run_in(terminal, "sample", *asked, cwd=copied, stdin="Käse\n")
    assert output.count("> ") == 2 and SHOWN[terminal].split()[0] in output


@pytest.mark.long
def test_all_scripts_print_in_any_terminal(copied: Path) -> None:
    shown = SHOWN["ascii"]
    assert shown in run_in("ascii", "sample", f"prompt={PROMPT}", "--cfg", "job", cwd=copied)
    text = ("run=run", "data=text", "data.path=Bücher")
    assert "nats per token" in run_in("C", "evaluate", *text, cwd=copied)
    assert "softmax" in run_in("cp1252", "shapes", cwd=copied)
    run_in("C", "look", "run=run", f"text={PROMPT}", "html=page.html", cwd=copied)
    assert json.dumps(f"text: {PROMPT}")[1:-1] in (copied / "page.html").read_text()


@pytest.mark.long
def test_a_folder_that_tensorboard_cannot_write_to_is_rejected(copied: Path) -> None:
    before = files(copied)
    (copied / "run").rename(copied / "Läufe")
    for script, *settings in (
        ("train", f"data.path={copied}/Bücher", "run_dir=ä/run", *SETTINGS),
        ("look", "run=Läufe", "text=Brot"),
    ):
        done = command(script, *settings, cwd=copied, **TERMINALS["C"])
        assert done.returncode == 2, done.stderr
        (line,) = done.stderr.splitlines()
        assert "is UTF-8" in line or "is not UTF-8" in line
    (copied / "Läufe").rename(copied / "run")
    assert files(copied).keys() == before.keys()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder on a read-only disk."""
    folder = tmp_path / "read only"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,ro", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a read-only disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def assert_trains_elsewhere(here: Path, elsewhere: Path) -> None:
    places = (f"run_dir={elsewhere}/run", f"cache_dir={elsewhere}/cache")
    done = command("train", *TINY, *places, cwd=here)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert (elsewhere / "run/summary.json").exists()


@pytest.mark.long
def test_a_read_only_folder_can_be_worked_in(read_only: Path, tmp_path: Path) -> None:
    assert_trains_elsewhere(read_only, tmp_path)
    run, cache = f"run={tmp_path}/run", f"cache_dir={tmp_path}/cache"
    assert succeed("sample", run, "max_new_tokens=5", cwd=read_only)
    assert succeed("evaluate", run, cache, cwd=read_only)
    assert succeed("look", run, "text=A hen", f"html={tmp_path}/page.html", cwd=read_only)
    resume = (f"resume={tmp_path}/run", "trainer.max_steps=8", cache)
    done = command("train", *resume, cwd=read_only)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    done = command("train", *TINY, cache, cwd=read_only)
    assert done.returncode == 2 and done.stderr.startswith("error: run_dir: runs"), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("runs", ["a file", "a dangling link"])
def test_runs_that_cannot_be_written_do_not_matter_elsewhere(tmp_path: Path, runs: str) -> None:
    here = tmp_path / "here"
    here.mkdir()
    if runs == "a file":
        (here / "runs").write_text("mine")
    else:
        (here / "runs").symlink_to("nowhere")
    before = files(here)
    assert_trains_elsewhere(here, tmp_path)
    assert files(here) == before
    done = command("train", *TINY, cwd=here)
    assert done.returncode == 2 and done.stderr.startswith("error: runs: is not a folder")
    assert files(here) == before


@pytest.mark.long
def test_a_disk_without_links_and_what_else_windows_lacks(tmp_path: Path) -> None:
    """Some disks have no links either."""
    (tmp_path / "sitecustomize.py").write_text(
        "import errno, os, signal, sys\n"
        "del signal.SIGHUP, signal.SIGUSR1\n"
        "sys.modules['readline'] = None\n"
        "def symlink(*_, **__):\n"
        "    raise OSError(errno.EPERM, 'Operation not permitted')\n"
        "os.symlink = symlink\n"
    )
    path = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    settings = (*TINY, "trainer.checkpoint_every=2", "run_dir=run")
    for number, each in enumerate((settings, ("resume=run", "trainer.max_steps=9"))):
        done = command("train", *each, cwd=tmp_path, **path)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "" and last_step(tmp_path / "run") == (6, 9)[number]
    for which in ("last", "best"):
        assert succeed("sample", "run=run", f"checkpoint={which}", "max_new_tokens=5", cwd=tmp_path)
    asked = ("run=run", "interactive=true", "max_new_tokens=5")
    done = command("sample", *asked, cwd=tmp_path, stdin="Once\n", **path)
    assert done.returncode == 0 and done.stdout.count("> ") == 2, done.stderr
