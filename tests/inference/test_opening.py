"""Opening runs: what is read of them, and what is refused."""

from __future__ import annotations

import copy
import json
import math
import pickle
import shutil
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from safetensors.torch import load_file

from common.errors import UserError
from data.batches import EvalBatches
from data.floor import floor_of
from data.tales import Tales, TalesConfig
from inference.corpus import corpus_of
from inference.opening import open_run
from launch.schema import preset
from model import GPT
from tensorboard_attention.naming import UNMEASURED
from tests.conftest import files, last_checkpoint
from tests.data.strings import trained
from training.evaluation import measure


def test_an_open_run_has_the_model_of_its_checkpoint(tiny_run: Path) -> None:
    opened = open_run(tiny_run, "last")
    assert opened.step == 6 and opened.run.path.resolve() == tiny_run.resolve()
    assert isinstance(corpus_of(opened.run), TalesConfig) and not opened.model.training
    assert opened.config.model == opened.model.config
    assert opened.tokenizer.vocab_size == opened.model.vocab_size
    weights = load_file(last_checkpoint(tiny_run) / "model.safetensors")
    for name, parameter in opened.model.named_parameters():
        assert torch.equal(parameter, weights[name])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
def test_an_open_run_can_be_copied_and_pickled(tiny_run: Path, copied: Any) -> None:
    run = open_run(tiny_run)
    other = copied(run)
    assert other.sample("a", 5) == run.sample("a", 5) and other.run.path == run.run.path
    assert other.model is not run.model


def test_opening_a_run_writes_nothing(tiny_run: Path) -> None:
    before = files(tiny_run)
    open_run(tiny_run, "best")
    assert files(tiny_run) == before


def changed(run: Path, folder: Path, name: str, value: object) -> Path:
    """A copy of the run with another value of one setting."""
    copy = folder / "run"
    shutil.copytree(run, copy, symlinks=True)
    settings = yaml.safe_load((copy / "config.yaml").read_text())
    *parents, key = name.split(".")
    section = settings
    for parent in parents:
        section = section[parent]
    section[key] = value
    (copy / "config.yaml").write_text(yaml.safe_dump(settings))
    return copy


def test_names_are_those_of_this_model(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    opened, file = open_run(tmp_path / "run", "last"), tmp_path / "run/evidence.json"
    evidence = json.loads(file.read_text())
    del evidence["heads"][[*evidence["heads"]][-1]]
    file.write_text(json.dumps(evidence))
    names = opened.head_names()
    assert names is not None and {each for layer in names for each in layer} == {UNMEASURED}


def test_a_setting_that_is_wrong_is_named_with_its_file(tiny_run: Path, tmp_path: Path) -> None:
    run = changed(tiny_run, tmp_path, "data.name", "novels")
    with pytest.raises(UserError, match=r"config\.yaml: data\.name: .novels. is unknown"):
        corpus_of(open_run(run, "last").run)


def test_a_number_written_by_hand_and_foreign_settings_are_accepted(
    tiny_run: Path, tmp_path: Path
) -> None:
    run = changed(tiny_run, tmp_path, "model.norm_eps", "1e-5")  # text in YAML 1.1
    (run / "config.yaml").write_text((run / "config.yaml").read_text() + "later: {setting: 1}\n")
    assert open_run(run, "last").config.model.norm_eps == 1e-5


def test_the_floor_of_a_text(tiny_run: Path, tmp_path: Path) -> None:
    """A reading knows what can be known of it: of a run on tales, from its settings alone."""
    run = open_run(tiny_run)
    for start in ("document", "text"):
        reading = run.read("Once there", start)
        expected = floor_of(reading.tokens.tolist(), run.tokenizer)
        assert np.array_equal(reading.floor.nats, expected.nats) and expected.unknown == ""
        assert reading.floor.next_tokens == expected.next_tokens
    floor = run.read("Once there was no tale").floor
    assert np.isnan(floor.nats[-1]) and floor.unknown == "text: is no tale, from ' no' on"
    settings = asdict(preset("data", "shakespeare"))
    for i, (data, why) in enumerate(
        [(settings, "was not trained on tales"), (None, "whose grammar"), ("novels", "data.name")]
    ):
        other = open_run(changed(tiny_run, tmp_path / f"{i}", "data", data))
        floor = other.read("Once there").floor
        assert np.isnan(floor.nats).all() and why in floor.unknown
        assert floor.next_tokens == [{}] * len(floor.nats)


def test_avoidable_loss_is_the_distance_above_the_floor() -> None:
    """Token by token over a whole split, it adds up to what evaluate.py prints."""
    corpus = Tales(TalesConfig("tales", n_bytes=20_000, seed=4, val_fraction=0.1))
    tokenizer = trained().of_text((), "\n\n")
    tales = [*corpus.tales("val")]
    split = [tokenizer.encode(f"{tale.text}\n\n") for tale in tales]
    starts = np.cumsum([0, *map(len, split[:-1])])
    config = replace(preset("model", "nano"), n_layers=1, context_length=max(map(len, split)))
    model = GPT(config, tokenizer.vocab_size).eval()
    batches = EvalBatches(
        np.concatenate(split).astype(np.uint16),
        config.context_length,
        4,
        starts,
        bits=np.array(corpus.document_bits()),
    )
    sizes, device = torch.from_numpy(tokenizer.token_bytes), torch.device("cpu")
    measured = measure(model, batches, sizes, device, nullcontext(), batches.bits)
    avoidable = 0.0
    for ids in split:
        tokens = [*tokenizer.beginning()[0], *ids]
        logits = model(torch.tensor([tokens[:-1]]))[0].double()
        nats = F.cross_entropy(logits, torch.tensor(ids), reduction="none").tolist()
        avoidable += math.fsum(nats) - math.fsum(floor_of(tokens, tokenizer).nats)
    assert measured.floor_bpb
    distance = (measured.bpb - measured.floor_bpb) * measured.bytes * math.log(2)
    assert avoidable == pytest.approx(distance, rel=1e-5)
