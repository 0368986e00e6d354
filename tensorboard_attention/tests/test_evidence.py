"""What heads and neurons do over many texts: the file, what is refused, and what the tab shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorboard_attention.evidence import NAME, read_evidence
from tensorboard_attention.tests.conftest import HOSTILE, log, served

SPELLED = [" Mia", " sang", HOSTILE, "."]


def head(role: str, score: str, *passages: list[Any]) -> dict[str, Any]:
    says = f"It {role}, {HOSTILE}"
    patterns = {"copy": [0.1, 0.05, 0.5, 300]}
    return {"role": [role, score], "says": says, "patterns": patterns, "passages": [*passages]}


def neuron(active: float, at: int) -> dict[str, Any]:
    passages = [[at, -2.5], [0, 1.5]]
    return {"active": active, "passages": passages, "raises": SPELLED[:2], "lowers": SPELLED[2:]}


EVIDENCE: dict[str, Any] = {
    "step": 5,
    "n_tokens": 7,
    "windows": [6, 3],
    "ids": [0, 1, 2, 3, 0, 1, 2, 0, 3],
    "spelled": SPELLED,
    "heads": {
        "L0H0": head("helps with 'a'", ""),
        "L0H1": head("previous token 70%", "previous token"),
        "L1H0": head("nearby 81%", "nearby"),
        "L1H1": head("copies 56%", "copy", [5, 2.25, [[1, 0.75], [4, 0.1]]], [8, 1, [[7, 0.5]]]),
    },
    "neurons": [[neuron(0.5, 2), neuron(0.75, 3)], [neuron(0.25, 7), neuron(0, 8)]],
}


def changed(*keys: str | int, to: Any) -> dict[str, Any]:
    found = json.loads(json.dumps(EVIDENCE))
    part = found
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = to
    return found


def write(folder: Path, found: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / NAME).write_text(json.dumps(found))
    return folder


@pytest.mark.parametrize(
    "found",
    [
        [],
        changed("step", to=None),
        changed("windows", to=[6, 4]),
        changed("ids", 0, to=4),
        changed("heads", "L0H0", "role", to=["copies 56%"]),
        changed("heads", "L1H1", "passages", 0, 0, to=9),
        changed("heads", "L1H1", "passages", 0, 2, 0, 0, to=-1),
        changed("neurons", 1, 0, "passages", 0, 0, to=9),
        changed("neurons", 1, 0, "active", to="0.5"),
    ],
    ids=str,
)
def test_anything_else_is_refused(tmp_path: Path, found: object) -> None:
    with pytest.raises(ValueError, match="it is not in the format"):
        read_evidence(write(tmp_path, found))


def test_the_server_answers_with_it(tmp_path: Path) -> None:
    for run in ("one", "two", "three"):
        log(tmp_path / run, 0)
    write(tmp_path / "one", EVIDENCE)
    write(tmp_path / "two", [])
    get = served(tmp_path)
    assert {*json.loads(get("/runs")[1])["evidence"]} == {"one", "two"}
    assert json.loads(get("/evidence", run="one")[1]) == EVIDENCE
    assert [get("/evidence", run=run)[0] for run in ("two", "three", "..")] == [404] * 3
