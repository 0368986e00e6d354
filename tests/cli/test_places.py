"""Runs in any terminal, in any folder."""

from __future__ import annotations

from pathlib import Path

import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import PLAIN, ROOT, TINY, command, files, succeed

TEXT = "Käse 🧀 und Brot 🍞: „gut“.\n\n"
PROMPT = "Käse 🧀"


def test_a_run_trains_in_any_terminal(tmp_path: Path) -> None:
    """It prints what the terminal lacks as escapes. Its files are UTF-8: Python, which warns where
    a file is opened without an encoding, finds none."""
    (tmp_path / "Bücher").mkdir()
    (tmp_path / "Bücher/text.txt").write_text(TEXT * 500, encoding="utf-8")
    settings = (
        *(each for each in TINY if not each.startswith(("data.", "tokenizer."))),
        *("data=text", "data.path=Bücher", "tokenizer=byte", f"observe.samples.prompt={PROMPT}"),
        *(f"observe.attention.probe={PROMPT} isst", "run_dir=run"),
    )
    terminal = {"PYTHONIOENCODING": "ascii", "PYTHONWARNDEFAULTENCODING": "1"}
    done = command("train", *settings, cwd=tmp_path, **terminal)
    assert done.returncode == 0, done.stderr
    assert "Sample:\n\n" + r"K\xe4se \U0001f9c0" in done.stdout
    warned = (line for line in done.stderr.splitlines() if "EncodingWarning" in line)
    ours = (line for line in warned if line.startswith(str(ROOT)))
    assert not [line for line in ours if "site-packages" not in line]
    stored = yaml.safe_load((tmp_path / "run/config.yaml").read_text(encoding="utf-8"))
    assert stored["observe"]["samples"]["prompt"] == PROMPT
    events = EventAccumulator(str(tmp_path / "run")).Reload()
    (sample,) = events.Tensors("sample/text_summary")[-1].tensor_proto.string_val
    assert PROMPT in sample.decode()


def test_a_file_called_runs_does_not_matter_elsewhere(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "runs").write_text("mine")
    before = files(here)
    places = (f"run_dir={tmp_path}/run", f"cache_dir={tmp_path}/cache")
    succeed("train", *PLAIN, *places, cwd=here)
    done = command("train", *PLAIN, cwd=here)
    assert done.returncode == 2 and "runs is not a writable folder (Not a" in done.stderr
    assert files(here) == before
