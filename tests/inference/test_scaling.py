"""Power laws of the loss above the floor, and how compare.py shows them."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from data.tokenizer import Tokenizer
from inference.results import results
from inference.scaling import fit, scaling
from tests.conftest import succeed


@given(n_runs=st.integers(3, 40), seed=st.integers(0, 2**32 - 1))
def test_a_fit_is_that_of_scipy(n_runs: int, seed: int) -> None:
    """On logarithms, with the intervals of the exponent and of the line, here at the middle x."""
    rng = np.random.default_rng(seed)
    u, v = rng.permutation(n_runs) / 2, rng.normal(-3, 2, n_runs)
    law, expected = fit("parameters", np.exp(u), np.exp(v)), stats.linregress(u - u.mean(), v)
    assert -law.alpha == pytest.approx(expected.slope)
    assert math.log(law.a) == pytest.approx(expected.intercept - expected.slope * u.mean())
    student = stats.t.ppf(0.975, n_runs - 2)
    assert law.margin == pytest.approx(student * expected.stderr, rel=1e-5)
    middle, low, high = np.log(law.line(np.exp(u.mean(keepdims=True))))[:, 0]
    assert middle == pytest.approx(expected.intercept)
    margin = student * expected.intercept_stderr
    assert [middle - low, high - middle] == pytest.approx([margin, margin], rel=1e-5)


def test_a_known_law_is_recovered() -> None:
    """Its interval contains the exponent in 95% of the draws, that of the line its value; and the
    scatter is that of the noise."""
    rng = np.random.default_rng(0)
    x = np.repeat([1e5, 2e5, 4e5, 8e5, 1.6e6], 3)
    contains, covers, scatters = [], [], []
    for _ in range(1000):
        law = fit("parameters", x, 7 * x**-0.8 * np.exp(0.1 * rng.standard_normal(15)))
        contains.append(abs(law.alpha - 0.8) <= law.margin)
        _, low, high = law.line(np.array([1e6]))[:, 0]
        covers.append(low <= 7 * 1e6**-0.8 <= high)
        scatters.append((law.scatter**2, law.of_seeds**2))
    assert [np.mean(contains), np.mean(covers)] == pytest.approx([0.95, 0.95], abs=0.02)
    assert np.mean(scatters, axis=0) == pytest.approx([0.01, 0.01], rel=0.05)
    assert fit("parameters", x, 7 * x**-0.8).alpha == pytest.approx(0.8)
    assert math.isnan(fit("parameters", [1, 2, 4], [3, 2, 1]).of_seeds)


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


def test_compare_fits_the_loss_above_the_floor(tiny_run: Path, tmp_path: Path) -> None:
    sizes = [sized(tiny_run, tmp_path / f"{width}", width, 16 / width) for width in (16, 32)]
    assert scaling(results(tmp_path)).lines() == []  # of two sizes
    sizes += [sized(tiny_run, tmp_path / f"{width}", width, 16 / width) for width in (64, 128)]
    sized(tiny_run, tmp_path / "256", 256, 0.0)
    found = scaling(results(tmp_path))
    order = sorted(range(4), key=lambda number: sizes[number][0])
    for law, x in zip(found.laws, zip(*sizes, strict=True), strict=True):
        assert sorted(law.x) == [x[number] for number in order]
        expected = stats.linregress(np.log(x), np.log([1, 0.5, 0.25, 0.125]))
        assert law.alpha == pytest.approx(-expected.slope)
    output = succeed("compare", ".", "html=report.html", cwd=tmp_path).splitlines()
    assert output[-6:-1] == found.lines()[1:]
    assert output[-5].startswith("parameters: ") and "1 of 5 runs" in output[-2]
    report = (tmp_path / "report.html").read_text()
    assert all(str(law) in report for law in found.laws)
    assert report.count("<svg") == 4 and "<script" not in report


def test_there_is_no_law_of_similar_sizes_or_without_floors(tiny_run: Path, tmp_path: Path) -> None:
    for width in (28, 30, 32):
        sized(tiny_run, tmp_path / f"{width}", width, 1 / width)
    rows = results(tmp_path)
    assert scaling(rows).lines() == []
    for number, row in enumerate(rows):
        row.update(parameters=10**number, floor_bpb=None)
    assert scaling(rows).lines() == []


def test_other_differences_are_named(tiny_run: Path, tmp_path: Path) -> None:
    for width in (16, 32, 64):
        sized(tiny_run, tmp_path / f"{width}", width, 1 / width)
    rows = results(tmp_path)
    rows[0]["optimizer.lr"] = 1.0
    assert "also differ in optimizer.lr" in scaling(rows).lines()[-1]
