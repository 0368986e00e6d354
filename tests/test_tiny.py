"""tiny.py computes what the project computes, in one file that imports nothing of it; shapes.py
shows what the attention module computes, in a table of 100 columns."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import tiny
from launch.schema import preset
from model import GPT, cross_entropy
from model.attention import CausalSelfAttention
from shapes import AXES, print_walk, walk
from store.checkpoint import TrainState
from tests.conftest import ROOT, small_config
from tests.training.conftest import CONFIG
from training.optimizer import Optimizer, lr_scale
from training.trainer import Trainer

ADAMW = preset("optimizer", "adamw", lr=tiny.LR, warmup_steps=tiny.WARMUP)


def pair() -> tuple[tiny.GPT, GPT]:
    """Both models of the default architecture with the same weights."""
    torch.manual_seed(0)
    own, model = tiny.GPT(), GPT(preset("model", "nano"), tiny.VOCAB)
    weights = dict(own.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights.pop(name))
    assert not weights
    return own, model


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    windows = torch.randint(tiny.VOCAB, (4, 65), generator=generator)
    return windows[:, :-1], windows[:, 1:]


def test_logits_loss_and_gradients_are_those_of_the_model() -> None:
    own, model = pair()
    inputs, targets = batch(0)
    logits, expected = own(inputs), model(inputs)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    loss, expected = tiny.next_token_loss(logits, targets), cross_entropy(expected, targets)
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=0)
    loss.backward()
    expected.backward()
    for name, parameter in own.named_parameters():
        reference = model.get_parameter(name)
        torch.testing.assert_close(parameter.grad, reference.grad, atol=1e-5, rtol=0)


def test_ten_steps_are_those_of_the_trainer() -> None:
    own, model = pair()
    optimizer = tiny.make_optimizer(own)
    trainer = Trainer(
        CONFIG, model, Optimizer(model, ADAMW, tiny.STEPS), batch, TrainState(), seed=0
    )
    for step in range(10):
        loss = tiny.train_step(own, optimizer, step + 1, *batch(step))
        trainer.step(*batch(step))
        torch.testing.assert_close(loss, trainer.train_loss, atol=1e-5, rtol=0)
    for name, parameter in own.named_parameters():
        torch.testing.assert_close(parameter, model.get_parameter(name), atol=1e-5, rtol=0)


@pytest.mark.parametrize("step", [1, 50, 101, 102, 450, 451, 1000, tiny.STEPS])
def test_the_learning_rate_is_that_of_the_schedule(step: int) -> None:
    expected = tiny.LR * lr_scale(step, tiny.STEPS, ADAMW)
    assert tiny.learning_rate(step) == pytest.approx(expected)


def test_a_text_is_learned_and_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("the hen sang to the jolly deer. " * 200)
    monkeypatch.setattr(sys, "argv", ["tiny.py", str(tmp_path / "notes.txt")])
    monkeypatch.setattr(tiny, "STEPS", 100)
    monkeypatch.setattr(tiny, "BATCH", 2)
    tiny.main()
    first, progress, *text = capsys.readouterr().out.splitlines()
    assert "parameters, 6,400 bytes" in first and progress.startswith("step 100: ")
    assert float(progress.split()[-1]) < 1  # a text that repeats itself
    assert "the jolly deer" in "\n".join(text)


@pytest.mark.parametrize(
    ("name", "said"), [("LICENSE", "has .* bytes; give a text"), ("nowhere", "is not a file")]
)
def test_a_text_that_is_missing_or_too_short_ends_in_one_line(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["tiny.py", str(ROOT / name)])
    with pytest.raises(SystemExit, match=said):
        tiny.main()


QWEN3 = {"n_kv_heads": 2, "d_head": 10}
GPT2 = {"position": "learned", "norm": "layernorm", "bias": True, "qk_norm": False}


@pytest.mark.parametrize("choices", [{}, QWEN3, GPT2, {"window": 2}])
@torch.no_grad()
def test_the_steps_match_the_module(choices):
    torch.manual_seed(0)
    attention = CausalSelfAttention(small_config(2, 4, 24, 16, **choices))
    x = torch.randn(3, 7, 24)
    walked = walk(attention, x)
    steps = {step.name: step.tensor for step in walked}

    assert next(iter(steps)) == "input" and torch.equal(steps["input"], x)
    torch.testing.assert_close(steps["output"], attention(x), rtol=1e-5, atol=1e-6)

    torch.testing.assert_close(steps["queries"], attention.query(x))
    torch.testing.assert_close(steps["keys"], attention.key(x))
    torch.testing.assert_close(steps["values"], attention.value(x))
    torch.testing.assert_close(
        steps["scaled"] * attention.d_head**0.5, steps["scores"], rtol=1e-5, atol=1e-6
    )
    first = choices.get("window", 7)
    hidden = torch.tensor([[not i - first < j <= i for j in range(7)] for i in range(7)])
    assert (steps["masked"][:, :, hidden] == -torch.inf).all()
    assert torch.equal(steps["masked"][:, :, ~hidden], steps["scaled"][:, :, ~hidden])
    torch.testing.assert_close(steps["weights"], steps["masked"].softmax(-1))
    torch.testing.assert_close(attention.output(steps["heads joined"]), steps["output"])
    skipped = {"queries normed", "keys rotated"} - steps.keys()
    assert len(skipped) == (2 if choices == GPT2 else 0)
    formulas = {step.name: step.formula for step in walked}
    assert formulas["queries"] == f"Q = x W_Q{' + b' if choices == GPT2 else ''}"
    assert ("before the window" in formulas["masked"]) == ("window" in choices)


def test_axis_names_match_the_shapes():
    sizes = {
        **{"batch": 3, "token": 7, "query": 7, "key": 7, "d_model": 24, "head": 4, "kv_head": 2},
        **{"d_head": 10, "head*d_head": 40, "kv_head*d_head": 20},
    }
    assert sizes.keys() == AXES.keys()
    attention = CausalSelfAttention(small_config(2, 4, 24, 16, **QWEN3))
    for step in walk(attention, torch.randn(3, 7, 24)):
        assert tuple(step.tensor.shape) == tuple(sizes[axis] for axis in step.axes), step.name


@pytest.mark.parametrize(("d_model", "columns"), [(24, "40"), (1024, "250")])
def test_the_table_has_100_columns_and_is_not_truncated(capsys, monkeypatch, d_model, columns):
    monkeypatch.setenv("COLUMNS", columns)
    print_walk(small_config(1, 4, d_model, 16))
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert len(lines) > 25 and {len(line) for line in lines} == {100}
    assert "…" not in printed
    for word in ("weights", f"(2, 16, {d_model})", "(2, 4, 16, 16)", "Q_h K_h^T", *AXES):
        assert word in printed
