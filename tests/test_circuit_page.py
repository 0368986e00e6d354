"""docs/circuit.py, which makes the figures of the page on a circuit."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from data.roles import AGAIN, tale_roles
from inference.opening import open_run
from tests.conftest import ROOT


def test_figures_are_of_places_where_a_name_comes_again(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tiny_run.parent.parent)
    page = runpy.run_path(str(ROOT / "docs/circuit.py"))
    monkeypatch.setitem(page["names_circuits"].__globals__, "N_NAMES", 3)
    page["main"](str(tiny_run))
    printed = capsys.readouterr().out
    opened = open_run(tiny_run, "last")
    corpus, _ = opened.text()
    tales = tale_roles(corpus, opened.tokenizer, page["N_TALES"], 32)
    assert tales is not None
    with torch.no_grad():
        shares = opened.model(torch.from_numpy(tales.inputs)).double().softmax(-1).numpy()
    places = np.argwhere(tales.roles == AGAIN)
    chosen = [tuple(places[i]) for i in (0, (len(places) - 1) // 2, len(places) - 1)]
    expected = np.mean([shares[place][tales.targets[place]] for place in chosen])
    assert float(re.findall(r"with all parts ([\d.]+)", printed)[0]) == pytest.approx(
        expected, abs=6e-4
    )
    scored = tales.targets >= 0
    rows, columns = np.nonzero(scored)
    bits = -np.log2(shares[rows, columns, tales.targets[scored]])
    avoidable = (bits - tales.floor[scored]).mean()
    assert float(re.findall(r"of all (-?[\d.]+)", printed)[0]) == pytest.approx(avoidable, abs=6e-5)
