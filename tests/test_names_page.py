"""docs/names.py, which makes the figures of docs/why.md and docs/circuit.md."""

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

page = runpy.run_path(str(ROOT / "docs/names.py"))


def test_names_are_measured_token_by_token(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and attention of the names that occur again, in a loop over the tales."""
    monkeypatch.chdir(tiny_run.parent.parent)
    opened = open_run(tiny_run, "last")
    names = page["find_names"](opened, "why.md")
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
    assert page["name_bits"](opened.model, names) == pytest.approx(np.mean(losses), rel=1e-4)
    found = page["name_copies"](opened.model, names)[1, 1]
    assert found == pytest.approx(np.mean(copied), rel=1e-4)


def test_the_script_answers_for_a_run(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its circuits are those of places where a name comes again, and what is avoidable is the loss
    above the floor."""
    monkeypatch.chdir(tiny_run.parent.parent)
    monkeypatch.setitem(page["main"].__globals__, "N_PLACES", 3)
    page["main"](tiny_run)
    printed = capsys.readouterr().out
    assert "a name that occurs again costs" in printed and "its queries read" in printed
    opened = open_run(tiny_run, "last")
    tales = page["find_names"](opened, "circuit.md").tales
    with torch.no_grad():
        shares = opened.model(torch.from_numpy(tales.inputs)).double().softmax(-1).numpy()
    places = np.argwhere(tales.roles == AGAIN)
    chosen = [tuple(places[i]) for i in (0, (len(places) - 1) // 2, len(places) - 1)]
    expected = np.mean([shares[place][tales.targets[place]] for place in chosen])
    found = float(re.findall(r"with all parts ([\d.]+)", printed)[0])
    assert found == pytest.approx(expected, abs=6e-4)
    scored = tales.targets >= 0
    rows, columns = np.nonzero(scored)
    bits = -np.log2(shares[rows, columns, tales.targets[scored]])
    avoidable = (bits - tales.floor[scored]).mean()
    found = float(re.findall(r"of all (-?[\d.]+)", printed)[0])
    assert found == pytest.approx(avoidable, abs=6e-5)


def test_a_run_trained_again_is_the_run(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one of its checkpoints on, bit for bit; and without a head another one."""
    monkeypatch.chdir(tiny_run.parent.parent)
    trained = load_file(tiny_run / "checkpoints/step-000006/model.safetensors")
    again = dict(page["train_without"](tiny_run, 3, []).named_parameters())
    assert all(torch.equal(again[name], weight) for name, weight in trained.items())
    without = dict(page["train_without"](tiny_run, 3, ["L1H0"]).named_parameters())
    name = "blocks.1.attention.output.weight"
    assert not torch.equal(without[name], trained[name])


@pytest.mark.long
def test_the_default_run_copies_names_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    succeed("train", "run_dir=run", cwd=tmp_path)
    monkeypatch.chdir(tmp_path)
    page["main"](Path("run"))
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
