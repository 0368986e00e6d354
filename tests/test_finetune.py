"""Finetuning from the command line: `train.py init_from=RUN` with the model of another run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from exchange.weights import read_tensors
from tests.conftest import (
    PLAIN,
    ROOT,
    configure,
    files,
    last_checkpoint,
    metrics,
    refused,
    rewrite,
    succeed,
)

FINETUNE = (
    *("data=text", "data.path=notes.txt", "optimizer=adamw", "optimizer.lr=2e-3"),
    *(each for each in PLAIN if each.startswith(("trainer.", "observe."))),
)


@pytest.fixture
def here(here: Path) -> Path:
    """With another text."""
    (here / "notes.txt").write_text((ROOT / "CONTRIBUTING.md").read_text() * 5)
    return here


def weights(run: Path, checkpoint: str | None = None) -> dict[str, torch.Tensor]:
    """Those of the last checkpoint, or of another one."""
    folder = run / "checkpoints" / checkpoint if checkpoint else last_checkpoint(run)
    return read_tensors(folder / "model.safetensors")


def test_finetuning_starts_from_the_base(here: Path) -> None:
    before = files(here / "run")
    steps = ("trainer.max_steps=30", "trainer.checkpoint_every=0", "trainer.eval_every=100")
    output = succeed("train", "init_from=run", *FINETUNE, *steps, "run_dir=fine", cwd=here)
    assert files(here / "run") == before
    on_notes = ("data=text", "data.path=notes.txt", "split=val")
    evaluated = succeed("evaluate", "run=run", "checkpoint=last", *on_notes, cwd=here)
    measured = [line for line in metrics(here / "fine") if "val_loss" in line]
    start, end = measured[0], measured[-1]
    found = re.search(r"val: ([\d.]+) nats per token", evaluated)
    assert found and start["step"] == 0
    assert start["val_loss"] == pytest.approx(float(found[1]), abs=6e-5)
    assert f"step 0/30  validation: {start['val_bpb']:.4f}" in output
    assert_close(weights(here / "fine", "step-000000"), weights(here / "run"), rtol=0, atol=0)
    assert end["step"] == 30 and end["val_loss"] < start["val_loss"]


def test_a_resume_takes_the_same_steps_without_the_base(here: Path) -> None:
    flat = ("optimizer.decay_fraction=0", "model.dropout=0.1", "trainer.eval_every=3")
    settings = ("init_from=run", *FINETUNE, *flat)
    succeed("train", *settings, "trainer.max_steps=6", "run_dir=whole", cwd=here)
    succeed("train", *settings, "trainer.max_steps=3", "run_dir=cut", cwd=here)
    shutil.rmtree(here / "run")
    assert "from step 3" in succeed("train", "resume=cut", "trainer.max_steps=6", cwd=here)
    for name in ("model.safetensors", "optimizer.safetensors"):
        whole, cut = (last_checkpoint(here / run) / name for run in ("whole", "cut"))
        assert whole.read_bytes() == cut.read_bytes()


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(here: Path) -> None:
    """By the same command, and from the same weights."""
    auto = ("resume=auto", "run_dir=cut")
    settings = (*FINETUNE, "init_from=run", "trainer.max_steps=3", *auto)
    succeed("train", *settings, cwd=here)
    run = here / "cut"
    whole = weights(run, "step-000000"), weights(run)
    shutil.rmtree(run / "checkpoints")
    (run / "summary.json").unlink()
    (here / "run").rename(here / "moved")
    assert "error: init_from: " in refused("train", *settings, cwd=here)
    (here / "moved").rename(here / "run")
    succeed("train", *settings, cwd=here)
    assert_close((weights(run, "step-000000"), weights(run)), whole, rtol=0, atol=0)


def test_learned_positions_are_cut(here: Path) -> None:
    learned = ("model=nano_gpt2", *PLAIN, "trainer.max_steps=2")
    succeed("train", *learned, "run_dir=gpt2", cwd=here)
    settings = (*FINETUNE, "model.context_length=11", "trainer.max_steps=1", "run_dir=fine")
    succeed("train", "init_from=gpt2", *settings, cwd=here)
    whole, cut = weights(here / "gpt2"), weights(here / "fine", "step-000000")
    whole["position.weight"] = whole["position.weight"][:11]
    assert_close(whole, cut, rtol=0, atol=0)


def test_a_converted_run_can_be_finetuned(here: Path) -> None:
    """It has weights of half precision, no corpus, and a tokenizer that is in no group."""
    base = here / "run"
    rewrite(base, lambda each: each.update({name: t.bfloat16() for name, t in each.items()}))
    metadata = {"data": None, "tokenizer": {"name": "hugging_face", "vocab_size": None}}
    configure(base, lambda each: each.update(metadata))
    fine = ("init_from=run", *FINETUNE, "trainer.max_steps=2", "run_dir=fine")
    succeed("train", *fine, cwd=here)
    expected = {name: each.float() for name, each in weights(base).items()}
    assert_close(weights(here / "fine", "step-000000"), expected, rtol=0, atol=0)
    succeed("train", "resume=fine", "trainer.max_steps=3", cwd=here)
    again = ("init_from=fine", *FINETUNE, "trainer.max_steps=1", "run_dir=again")
    succeed("train", *again, cwd=here)
    assert_close(weights(here / "again", "step-000000"), weights(here / "fine"), rtol=0, atol=0)
