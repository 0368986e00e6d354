"""Finetuning from the command line: `train.py init_from=RUN` with the model of another run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

from exchange.weights import read_tensors
from tests.conftest import (
    ROOT,
    command,
    configure,
    files,
    last_checkpoint,
    metrics,
    rewrite,
    succeed,
)

MODEL = (
    "model.n_layers=2",
    "model.n_heads=2",
    "model.d_model=32",
    "model.context_length=32",
)
TRAINER = (
    "trainer.batch_size=8",
    "trainer.eval_tokens=all",
    "trainer.log_every=1",
    "observe.tensorboard=false",
    "observe.samples.max_new_tokens=5",
)
TEXT = ("data=text", "data.path=notes.txt")
FINETUNE = (*TEXT, *TRAINER, "optimizer=adamw", "optimizer.lr=2e-3", "optimizer.warmup_steps=5")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run trained on tales and with another text."""
    folder = tmp_path_factory.mktemp("finetune")
    text = "\n".join(each.read_text() for each in sorted(ROOT.glob("docs/*.md")))
    (folder / "notes.txt").write_text(text[:60_000])
    settings = ("data.n_bytes=200000", "tokenizer=byte", "trainer.max_steps=6")
    succeed("train", *MODEL, *TRAINER, *settings, "run_dir=runs/base", cwd=folder)
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(trained, tmp_path / "here", symlinks=True))


def weights(run: Path, checkpoint: str | None = None) -> dict[str, torch.Tensor]:
    """Those of the last checkpoint, or of another one."""
    folder = run / "checkpoints" / checkpoint if checkpoint else last_checkpoint(run)
    return read_tensors(folder / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_finetuning_starts_from_the_base(here: Path) -> None:
    before = files(here / "runs/base")
    steps = (*FINETUNE, "trainer.max_steps=50", "trainer.checkpoint_every=0")
    output = succeed("train", "init_from=runs/latest", *steps, "run_dir=fine", cwd=here)
    assert files(here / "runs/base") == before
    evaluated = succeed(
        "evaluate", "run=runs/base", "checkpoint=last", *TEXT, "split=val", cwd=here
    )
    start, end = (
        [line for line in metrics(here / "fine") if "val_loss" in line][i] for i in (0, -1)
    )
    found = re.search(r"val: ([\d.]+) nats per token", evaluated)
    assert found and start["step"] == 0
    assert start["val_loss"] == pytest.approx(float(found[1]), abs=6e-5)
    assert f"step 0/50  validation: {start['val_bpb']:.4f}" in output
    assert same(weights(here / "fine", "step-000000"), weights(here / "runs/base"))
    assert end["step"] == 50 and end["val_loss"] < start["val_loss"]


def test_a_resume_does_not_need_the_base(here: Path) -> None:
    flat = ("optimizer.decay_fraction=0", "trainer.eval_every=3", "model.dropout=0.1")
    settings = ("init_from=runs/base", *FINETUNE, *flat)
    succeed("train", *settings, "trainer.max_steps=6", "run_dir=whole", cwd=here)
    succeed("train", *settings, "trainer.max_steps=3", "run_dir=cut", cwd=here)
    shutil.rmtree(here / "runs/base")
    succeed("train", "resume=cut", "trainer.max_steps=6", cwd=here)
    for name in ("model", "optimizer"):
        one, other = (
            (here / run / f"checkpoints/step-000006/{name}.safetensors").read_bytes()
            for run in ("whole", "cut")
        )
        assert one == other
    assert metrics(here / "whole")[-1] == metrics(here / "cut")[-1]


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(here: Path) -> None:
    """By the same command, and from the same weights."""
    auto = ("resume=auto", "run_dir=cut")
    settings = (*FINETUNE, "init_from=runs/base", "trainer.max_steps=3", *auto)
    succeed("train", *settings, cwd=here)
    run = here / "cut"
    whole = weights(run, "step-000000"), weights(run)
    shutil.rmtree(run / "checkpoints")
    (run / "summary.json").unlink()
    (here / "runs/base").rename(here / "moved")
    before = files(here)
    done = command("train", *settings, cwd=here)
    assert done.returncode == 2 and "error: init_from: " in done.stderr
    assert files(here) == before
    (here / "moved").rename(here / "runs/base")
    succeed("train", *settings, cwd=here)
    assert same(weights(run, "step-000000"), whole[0]) and same(weights(run), whole[1])


def test_learned_positions_are_cut(here: Path) -> None:
    learned = (*TRAINER, "model=nano_gpt2", *MODEL, "data.n_bytes=60000", "tokenizer=byte")
    succeed("train", *learned, "trainer.max_steps=2", "run_dir=gpt2", cwd=here)
    settings = (*FINETUNE, "model.context_length=11", "trainer.max_steps=1", "run_dir=fine")
    succeed("train", "init_from=gpt2", *settings, cwd=here)
    whole, cut = weights(here / "gpt2"), weights(here / "fine", "step-000000")
    whole["position.weight"] = whole["position.weight"][:11]
    assert same(whole, cut)


def test_a_converted_run_can_be_finetuned(here: Path) -> None:
    """It has weights of half precision, no corpus, and a tokenizer that is in no group."""
    base = here / "runs/base"
    rewrite(base, lambda each: each.update({name: t.bfloat16() for name, t in each.items()}))
    metadata = {"data": None, "tokenizer": {"name": "hugging_face", "vocab_size": None}}
    configure(base, lambda each: each.update(metadata))
    succeed(
        *("train", "init_from=runs/base", *FINETUNE, "trainer.max_steps=2", "run_dir=fine"),
        cwd=here,
    )
    expected = {name: each.float() for name, each in weights(base).items()}
    assert same(weights(here / "fine", "step-000000"), expected)
    succeed("train", "resume=fine", "trainer.max_steps=3", cwd=here)
    again = ("init_from=fine", *FINETUNE, "trainer.max_steps=1", "run_dir=again")
    succeed("train", *again, cwd=here)
    assert same(weights(here / "again", "step-000000"), weights(here / "fine"))
