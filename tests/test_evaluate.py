"""evaluate.py on a real run, and on another text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from inference.opening import open_run
from tests.conftest import command, succeed


def test_it_agrees_with_the_run(tiny: Path, tiny_run: Path) -> None:
    """Evaluating the best checkpoint gives the validation loss that training measured."""
    measured = [json.loads(line) for line in (tiny_run / "metrics.jsonl").read_text().splitlines()]
    best = min((line for line in measured if "val_loss" in line), key=lambda line: line["val_loss"])
    output = succeed("evaluate", "batch_size=7", cwd=tiny)
    assert f"{best['val_loss']:.4f} nats per token" in output
    assert f"{best['val_bpb']:.4f} bits per byte" in output
    assert f"floor of {best['floor_bpb']:.4f}" in output


def test_it_prints_one_line_of_json(tiny: Path, tiny_run: Path) -> None:
    done = command("evaluate", "json=true", "checkpoint=last", cwd=tiny)
    printed = done.stdout
    found, summary = json.loads(printed), json.loads((tiny_run / "summary.json").read_text())
    assert printed.count("\n") == 1 and found["bytes"] > found["tokens"] > 0
    assert (found["run"], found["step"], found["split"]) == (f"runs/{tiny_run.name}", 6, "val")
    assert done.stderr == f"evaluating {found['tokens']:,} tokens\n"
    for name, value in (("loss", "val_loss"), ("bpb", "val_bpb"), ("floor_bpb", "floor_bpb")):
        assert found[name] == pytest.approx(summary[value], rel=1e-6)


def test_it_on_other_text(tiny: Path, tmp_path: Path) -> None:
    """Every token except the first is scored exactly once, as in an explicit loop."""
    text = "Once upon a time there was a hen. " * 20
    (tmp_path / "hen.txt").write_text(text)
    output = succeed("evaluate", "data=text", f"data.path={tmp_path}/hen.txt", cwd=tiny)
    opened = open_run(tiny / "runs/latest", "best")
    tokenizer, model = opened.tokenizer, opened.model
    tokens = torch.tensor(tokenizer.encode(text))
    nats = 0.0
    for start in range(0, len(tokens) - 1, 32):
        window = tokens[start : start + 33]
        logits = model(window[None, :-1])[0].double()
        nats -= logits.log_softmax(-1).gather(1, window[1:, None]).sum().item()
    assert f"{nats / (len(tokens) - 1):.4f} nats per token" in output
    assert f"({len(tokens) - 1:,} tokens" in output


def test_both_splits_together_are_scored_as_each_alone(tiny: Path, tiny_run: Path) -> None:
    """A tale follows the end of another one, whichever it is."""
    train, val, whole = (
        json.loads(succeed("evaluate", "json=true", f"split={split}", cwd=tiny))
        for split in ("train", "val", "all")
    )
    assert whole["tokens"] == train["tokens"] + val["tokens"]
    nats = sum(each["loss"] * each["tokens"] for each in (train, val))
    assert whole["loss"] * whole["tokens"] == pytest.approx(nats, rel=1e-6)
