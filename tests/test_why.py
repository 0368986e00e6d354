"""docs/why.py, which makes the figures of the page "Why does it do that?"."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from data.roles import AGAIN
from inference.opening import open_run
from model import record_attention
from tests.conftest import ROOT, succeed

why = runpy.run_path(str(ROOT / "docs/why.py"))


def test_names_are_measured_token_by_token(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and attention of the names that occur again, in a loop over the tales."""
    monkeypatch.chdir(tiny_run.parent.parent)
    opened = open_run(tiny_run, "last")
    names = why["find_names"](opened)
    losses, copied = [], []
    for inputs, targets, roles in zip(
        names.tales.inputs, names.tales.targets, names.tales.roles, strict=True
    ):
        tokens = torch.from_numpy(inputs)[None]
        with torch.no_grad(), record_attention(opened.model) as maps:
            logits = opened.model(tokens)[0]
        for place in np.flatnonzero(roles == AGAIN):
            target = torch.tensor(targets[place])
            losses.append(F.cross_entropy(logits[place], target) / np.log(2))
            earlier = [key for key in range(place + 1) if inputs[key] == targets[place]]
            copied.append(float(maps[1][0, 1, place, earlier].sum()))
    assert losses
    assert why["name_bits"](opened.model, names) == pytest.approx(np.mean(losses), rel=1e-4)
    found = why["name_copies"](opened.model, names)[1, 1]
    assert found == pytest.approx(np.mean(copied), rel=1e-4)


def test_the_script_answers_for_a_run(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tiny_run.parent.parent)
    why["main"]([tiny_run])
    said = capsys.readouterr().out
    assert "a name that occurs again costs" in said and "its queries read" in said
    assert "roles/names again, in bits per tale: " in said


def test_a_run_trained_again_is_the_run(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one of its checkpoints on, bit for bit; and without a head another one."""
    monkeypatch.chdir(tiny_run.parent.parent)
    trained = load_file(tiny_run / "checkpoints/step-000006/model.safetensors")
    again = dict(why["train_without"](tiny_run, 3, []).named_parameters())
    assert all(torch.equal(again[name], weight) for name, weight in trained.items())
    without = dict(why["train_without"](tiny_run, 3, [(1, 0)]).named_parameters())
    name = "blocks.1.attention.output.weight"
    assert not torch.equal(without[name], trained[name])


@pytest.mark.long
def test_the_default_run_copies_names_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    succeed("train", "run_dir=run", cwd=tmp_path)
    monkeypatch.chdir(tmp_path)
    why["main"]([Path("run")])
    said = capsys.readouterr().out
    bits, floor = map(float, re.findall(r"costs ([\d.]+) bits \(floor ([\d.]+)\)", said)[0])
    assert bits < floor + 0.1
    first, second = re.findall(r"without (L\dH\d) ([\d.]+) bits", said)[:2]
    (both,) = re.findall(rf"without {first[0]} and {second[0]} ([\d.]+) bits", said)
    assert float(first[1]) > floor + 0.8 and float(both) > floor + 1.5
    if first[0].startswith("L1"):  # as in nine of ten seeds
        assert int(re.findall(r"attends to earlier mentions of the name with (\d+)%", said)[0]) > 40
        assert int(re.findall(r"queries read L0 MLP (\d+)%", said)[0]) > 45
        assert int(re.findall(r"without L0 MLP it attends to them with (\d+)%", said)[0]) < 30
