"""docs/names.py, which makes the figures of docs/why.md and docs/circuit.md."""

from __future__ import annotations

import math
import re
import runpy
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from data.roles import AGAIN
from inference.opening import open_run
from model import record_attention
from tests.conftest import ROOT, succeed

page = runpy.run_path(str(ROOT / "docs/names.py"))


def test_the_script_answers_for_a_run(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it prints of names that occur again and of the loss above the floor is that of a loop
    over the tales."""
    monkeypatch.chdir(tiny_run.parent.parent)
    monkeypatch.setitem(page["main"].__globals__, "N_PLACES", 3)
    monkeypatch.setitem(page["N_TALES"], "circuit.md", page["N_TALES"]["why.md"])
    page["main"](tiny_run)
    printed = capsys.readouterr().out
    opened = open_run(tiny_run, "last")
    names = page["find_names"](opened, "why.md")
    losses, avoidable = [], []
    copied: dict[str, list[float]] = defaultdict(list)
    for inputs, targets, roles, floor in zip(
        names.tales.inputs, names.tales.targets, names.tales.roles, names.tales.floor, strict=True
    ):
        tokens = torch.from_numpy(inputs)[None]
        with torch.no_grad(), record_attention(opened.model) as maps:
            shares = opened.model(tokens)[0].softmax(-1)
        for place in np.flatnonzero(targets >= 0):
            bits = -math.log2(shares[place, targets[place]])
            avoidable.append(bits - floor[place])
            if roles[place] != AGAIN:
                continue
            losses.append(bits)
            earlier = [key for key in range(place + 1) if inputs[key] == targets[place]]
            for layer, head in np.ndindex(2, 2):
                weights = maps[layer][0, head, place, earlier]
                copied[f"L{layer}H{head}"].append(float(weights.sum()))
    (cost,) = re.findall(r"a name that occurs again costs ([\d.]+) bits", printed)
    assert float(cost) == pytest.approx(np.mean(losses), abs=6e-3)
    heads = re.findall(r"without (L\dH\d) [\d.]+ bits; it attends .* with (\d+)%", printed)
    assert len(heads) == 3 and "its queries read" in printed
    for head, share in heads:
        assert int(share) / 100 == pytest.approx(np.mean(copied[head]), abs=6e-3)
    (mean,) = re.findall(r"of all (-?[\d.]+)", printed)
    assert float(mean) == pytest.approx(np.mean(avoidable), abs=6e-4)


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
