"""Losses by what the next token is, compared with sums over one text at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from data.batches import UNSCORED
from data.encoding import Dataset
from data.roles import ROLES
from data.tales import Tales
from data.tokenizer import fixed_tokenizer
from launch.schema import preset
from model import GPT
from observe.context import RunContext
from observe.losses_file import LossesFile
from observe.roles import Outputs, scored_texts, target_bits
from tensorboard_attention.losses import read_losses
from tests.conftest import small_config
from tests.observe.conftest import run_context, trainer_at
from training.callback import EvalMetrics

TALES = Tales(preset("data", "tales"))
N_TALES = 16  # as many as are read for a small model


def tales_context(folder: Path, context_length: int) -> RunContext:
    torch.manual_seed(0)
    model = GPT(small_config(2, 2, 16, context_length, dropout=0.5), 256)
    nn.init.normal_(model.unembedding.weight)
    return replace(run_context(folder, model=model), corpus=TALES)


def test_the_roles_add_up_to_the_distance_from_the_floor(tmp_path: Path) -> None:
    context = tales_context(tmp_path, 2000)
    found = Outputs(context).losses(0)
    assert context.model.training, "as before"
    assert found.keys() == {f"roles/{name}" for name in ROLES}
    distances = []
    for _, tale in zip(range(N_TALES), TALES.tales("val"), strict=False):
        text = torch.tensor([*f"\n\n{tale.text}\n\n".encode()])[None]
        log_p = context.model.eval()(text[:, :-1]).log_softmax(-1)
        nats = -log_p.gather(-1, text[:, 1:, None]).double()[0, 1:].sum()
        distances.append(nats.item() / math.log(2) - tale.bits)
    assert sum(found.values()) == pytest.approx(np.mean(distances), rel=1e-6)
    assert len(distances) == N_TALES and min(map(abs, found.values())) > 1


def test_losses_of_another_corpus(tmp_path: Path) -> None:
    text = "One cat saw one dog. The cat ran, and the cat sat; é was a letter. " * 9
    tokens = np.frombuffer(text.encode(), np.uint8).astype(np.uint16)
    context = run_context(tmp_path, model=GPT(small_config(1, 1, 8, 40), 256))
    context.dataset = Dataset(fixed_tokenizer("byte"), tokens[:100], tokens, None, "0")
    texts = scored_texts(context)
    assert texts.targets.shape[1] == 40 and texts.floor is None
    bits, found = target_bits(context.model, texts), Outputs(context).losses(3)
    scored = np.where(texts.targets != UNSCORED, bits, np.nan)
    assert found == {
        "target position/0 to 15": pytest.approx(np.nanmean(scored[:, :16])),
        "target position/16 to 63": pytest.approx(np.nanmean(scored[:, 16:])),
    }


def test_the_file_that_the_tab_reads(tmp_path: Path) -> None:
    context = tales_context(tmp_path, 60)
    file = LossesFile(context, outputs := Outputs(context))
    file.on_start(trainer_at(context, 0))
    for step in (10, 20):
        file.on_eval(trainer_at(context, step), EvalMetrics(1.5, 0.55, 60, 0.5))
    found = read_losses(tmp_path)
    texts, bits = outputs.scored_texts, outputs.target_bits(20)
    assert [*found["steps"]] == ["10", "20"]
    assert found["unit"] == f"bits per tale above the floor (mean of {N_TALES} tales)"
    assert found["steps"]["20"]["values"] == pytest.approx(outputs.losses(20), abs=1e-4)
    for row, (tokens, floor, seen) in enumerate(
        zip(found["texts"], found["floor"], found["steps"]["20"]["bits"], strict=True)
    ):
        scored = texts.targets[row] != UNSCORED
        assert "".join(tokens).encode() == bytes(texts.targets[row][scored].tolist())
        assert seen == pytest.approx(bits[row][scored].tolist(), abs=1e-3)
        assert texts.floor is not None
        assert floor == pytest.approx(texts.floor[row][scored].tolist(), abs=1e-3)
        for tag, places in found["groups"].items():
            assert places[row] == np.flatnonzero(texts.groups[tag][row][scored]).tolist()
    whole = file.path.read_bytes()
    for left, evaluated, kept in (
        (whole, 10, ["10"]),
        (whole, None, []),  # the evaluation comes again
        (whole + b'{"step": 15, "val', 10, ["10"]),  # the process was killed while writing
        (whole[:-1], 10, ["10"]),
        (whole[200:], 10, ["10"]),  # a damaged disk
        (b"damaged", 10, []),
    ):
        file.path.write_bytes(left)
        resumed, trainer = LossesFile(context, outputs), trainer_at(context, 10)
        trainer.state.evaluated = evaluated
        resumed.on_start(trainer)
        resumed.on_eval(trainer_at(context, 15), EvalMetrics(1.5, 0.55, 60, 0.5))
        assert read_losses(tmp_path) == {
            **found,
            "steps": {step: found["steps"][step] for step in kept}
            | {"15": read_losses(tmp_path)["steps"]["15"]},
        }
