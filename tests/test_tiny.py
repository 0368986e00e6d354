"""tiny.py computes what the project computes, in one file that imports nothing of it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
import torch

import tiny
from launch.schema import preset
from model import GPT, cross_entropy
from store.checkpoint import TrainState
from tests.conftest import ROOT
from tests.training.conftest import CONFIG
from training.optimizer import Optimizer, lr_scale
from training.trainer import Trainer


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
    adamw = preset("optimizer", "adamw", lr=tiny.LR, warmup_steps=tiny.WARMUP)
    trainer = Trainer(
        CONFIG, model, Optimizer(model, adamw, tiny.STEPS), batch, TrainState(), seed=0
    )
    for step in range(10):
        loss = tiny.train_step(own, optimizer, step + 1, *batch(step))
        trainer.step(*batch(step))
        torch.testing.assert_close(loss, trainer.train_loss, atol=1e-5, rtol=0)
    for name, parameter in own.named_parameters():
        torch.testing.assert_close(parameter, model.get_parameter(name), atol=1e-5, rtol=0)


@pytest.mark.parametrize("step", [1, 50, 101, 102, 450, 451, 1000, tiny.STEPS])
def test_the_learning_rate_is_that_of_the_schedule(step: int) -> None:
    adamw = preset("optimizer", "adamw", lr=tiny.LR, warmup_steps=tiny.WARMUP)
    expected = tiny.LR * lr_scale(step, tiny.STEPS, adamw)
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


def test_it_is_short_and_needs_only_torch() -> None:
    text = (ROOT / "tiny.py").read_text()
    assert len(text.splitlines()) <= 200
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import)]
    froms = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names}
    names |= {node.module or "" for node in froms}
    assert {name.partition(".")[0] for name in names} == {"math", "sys", "pathlib", "torch"}
