"""shapes.py shows what the attention module computes, in a table of 100 columns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from launch.schema import preset
from model.attention import CausalSelfAttention
from shapes import AXES, print_walk, walk

SIZES: dict[str, Any] = {"n_layers": 2, "n_heads": 4, "d_model": 24, "context_length": 16}
QWEN3: dict[str, Any] = {"n_kv_heads": 2, "d_head": 10}


@pytest.mark.parametrize(("name", "sizes"), [("nano", {}), ("nano", QWEN3), ("nano_gpt2", {})])
@torch.no_grad()
def test_the_steps_match_the_module(name, sizes):
    torch.manual_seed(0)
    attention = CausalSelfAttention(preset("model", name, **SIZES, **sizes))
    x = torch.randn(3, 7, 24)
    steps = {step.name: step.tensor for step in walk(attention, x)}

    assert next(iter(steps)) == "input" and torch.equal(steps["input"], x)
    torch.testing.assert_close(steps["output"], attention(x), rtol=1e-5, atol=1e-6)

    torch.testing.assert_close(steps["queries"], attention.query(x))
    torch.testing.assert_close(steps["keys"], attention.key(x))
    torch.testing.assert_close(steps["values"], attention.value(x))
    torch.testing.assert_close(
        steps["scaled"] * attention.d_head**0.5, steps["scores"], rtol=1e-5, atol=1e-6
    )
    later = torch.ones(7, 7, dtype=torch.bool).triu(1)
    assert (steps["masked"][:, :, later] == -torch.inf).all()
    assert torch.equal(steps["masked"][:, :, ~later], steps["scaled"][:, :, ~later])
    torch.testing.assert_close(steps["weights"], steps["masked"].softmax(-1))
    torch.testing.assert_close(attention.output(steps["heads joined"]), steps["output"])


def test_keys_before_the_window_are_masked():
    attention = CausalSelfAttention(preset("model", "nano", **SIZES, window=2))
    steps = {step.name: step for step in walk(attention, torch.randn(3, 7, 24))}
    expected = torch.tensor([[j in (i - 1, i) for j in range(7)] for i in range(7)])
    assert torch.equal(steps["weights"].tensor > 0, expected.expand_as(steps["weights"].tensor))
    assert steps["masked"].formula == "scaled; later keys and those before the window: -inf"


def test_axis_names_match_the_shapes():
    sizes = {
        **{"batch": 3, "token": 7, "query": 7, "key": 7, "d_model": 24, "head": 4, "kv_head": 2},
        **{"d_head": 10, "head*d_head": 40, "kv_head*d_head": 20},
    }
    assert sizes.keys() == AXES.keys()
    attention = CausalSelfAttention(preset("model", "nano", **SIZES, **QWEN3))
    for step in walk(attention, torch.randn(3, 7, 24)):
        assert tuple(step.tensor.shape) == tuple(sizes[axis] for axis in step.axes), step.name


def test_steps_that_a_model_lacks_are_skipped():
    attention = CausalSelfAttention(preset("model", "nano_gpt2", **SIZES))
    steps = walk(attention, torch.randn(1, 3, 24))
    assert not [step.name for step in steps if "normed" in step.name or "rotated" in step.name]
    assert "+ b" in next(step.formula for step in steps if step.name == "queries")


@pytest.mark.parametrize(("d_model", "columns"), [(24, "40"), (1024, "250")])
def test_the_table_has_100_columns_and_is_not_truncated(capsys, monkeypatch, d_model, columns):
    monkeypatch.setenv("COLUMNS", columns)
    print_walk(preset("model", "nano", **{**SIZES, "n_layers": 1, "d_model": d_model}))
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert len(lines) > 25 and {len(line) for line in lines} == {100}
    assert "…" not in printed
    for word in ("weights", f"(2, 16, {d_model})", "(2, 4, 16, 16)", "Q_h K_h^T", *AXES):
        assert word in printed
