"""docs/scaling.py, which fits the power laws of the page "How the loss falls with size"."""

from __future__ import annotations

import json
import math
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from common.errors import UserError
from data.tokenizer import Tokenizer
from store.results import results
from tests.conftest import ROOT

scaling = runpy.run_path(str(ROOT / "docs/scaling.py"))
fit = scaling["fit"]


@given(n_runs=st.integers(3, 40), seed=st.integers(0, 2**32 - 1))
def test_a_fit_is_that_of_scipy(n_runs: int, seed: int) -> None:
    """On logarithms, with the interval of the exponent."""
    rng = np.random.default_rng(seed)
    u, v = rng.permutation(n_runs) / 2, rng.normal(-3, 2, n_runs)
    law, expected = fit(np.exp(u), np.exp(v)), stats.linregress(u, v)
    assert -law.alpha == pytest.approx(expected.slope)
    assert math.log(law.a) == pytest.approx(expected.intercept)
    margin = stats.t.ppf(0.975, n_runs - 2) * expected.stderr
    assert law.margin == pytest.approx(margin, rel=1e-3)


def sized(tiny_run: Path, copy: Path, d_model: int, above: float) -> tuple[int, int, int]:
    """A copy of a run as if it had another width and result. Returns its parameters, those without
    embeddings, and its training FLOPs, by their formulas for two layers with a context of 32."""
    shutil.copytree(tiny_run, copy, symlinks=True)
    settings = yaml.safe_load((copy / "config.yaml").read_text())
    width = 32 * math.ceil(d_model / 12)
    sizes = {"d_model": d_model, "d_head": d_model // 2, "d_mlp": width}
    settings["model"] |= sizes
    settings["seed"] = len(list(copy.parent.iterdir()))
    (copy / "config.yaml").write_text(yaml.safe_dump(settings))
    matrices = 2 * (4 * d_model**2 + 3 * d_model * width)
    embeddings = Tokenizer.load(copy / "tokenizer").vocab_size * d_model
    inner = matrices + 2 * (2 * d_model + 2 * d_model // 2) + d_model
    summary = json.loads((copy / "summary.json").read_text())
    changed = {"val_bpb": summary["floor_bpb"] + above, "parameters": inner + embeddings}
    (copy / "summary.json").write_text(json.dumps({**summary, **changed}))
    flops = 6 * (matrices + embeddings) + 12 * 2 * d_model * 32
    return inner + embeddings, inner, flops * summary["tokens"]


def test_runs_are_fitted_by_each_size(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [sized(tiny_run, tmp_path / f"{width}", width, 16 / width) for width in (16, 32)]
    with pytest.raises(UserError, match="fewer than 3 numbers of parameters"):
        scaling["main"]([tmp_path])
    found += [sized(tiny_run, tmp_path / f"{width}", width, 16 / width) for width in (64, 128)]
    sized(tiny_run, tmp_path / "256", 256, 0.0)
    rows = {row["model.d_model"]: row for row in results(tmp_path)}
    assert [scaling["sizes"](rows[width]) for width in (16, 32, 64, 128)] == found
    scaling["main"]([tmp_path])
    left_out, _, *laws = capsys.readouterr().out.splitlines()
    assert left_out.endswith(" 1 runs")
    for line, name, x in zip(laws, scaling["NAMES"], zip(*found, strict=True), strict=True):
        expected = stats.linregress(np.log(x), np.log([1, 0.5, 0.25, 0.125]))
        assert line.startswith(f"{name}: ") and f" alpha = {-expected.slope:.3f} [" in line
