"""A run remembers the code that made it, and one with settings of other code says so."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from store.code import code_sha256, code_version
from store.run import Run
from tests.conftest import ROOT, command, configure


def test_the_commit_of_the_clone_is_stored(tiny_run: Path) -> None:
    git = shutil.which("git")
    if not git or not (ROOT / ".git").exists():
        assert [*json.loads((tiny_run / "code.json").read_text())] == ["sha256"]
        return
    head = subprocess.check_output([git, "rev-parse", "HEAD"], cwd=ROOT, text=True)
    found = json.loads((tiny_run / "code.json").read_text())
    assert found["commit"] == head.strip() and isinstance(found["clean"], bool)


def test_a_run_that_other_code_continues_is_of_neither(run: Path) -> None:
    """So verdict.py takes it for none of them."""
    stored, now = Run(run), code_version()
    assert code_sha256() == json.loads(now)["sha256"]
    stored.store_code(now)
    assert stored.code_file.read_text() == now, "the same code"
    for code in (now.replace(code_sha256(), "other"), now):
        stored.store_code(code)
        assert json.loads(stored.code_file.read_text())["sha256"] is None


def test_a_model_setting_that_this_clone_does_not_have(run: Path) -> None:
    configure(run, lambda settings: settings["model"].update(wings=1))
    code = {"commit": "0123456789abcdef", "clean": False}
    (run / "code.json").write_text(json.dumps(code))
    for script, setting in (("train", "resume"), ("sample", "run")):
        done = command(script, f"{setting}={run}", cwd=run.parent)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert "model.wings: no such setting" in line
        assert line.endswith("(the run was made by commit 0123456789ab, with changes)")
