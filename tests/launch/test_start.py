"""The one call that starts a run, and the settings that it takes, without a command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from filelock import FileLock, Timeout
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict
from safetensors.torch import load_file

from common.errors import UserError
from data.tokenizer import Tokenizer
from launch.cli import VERSION, plain_values
from launch.quoting import CONFIGS, read_arguments
from launch.schema import TrainConfig
from launch.settings import Settings, open_settings
from launch.start import Started, start
from model import GPT
from store.settings import read_settings
from tests.conftest import TINY, configure, last_checkpoint
from training.distributed import Ranks


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    HydraConfig.instance().cfg = None


def settings(*overrides: str) -> Settings:
    """What train.py reads of its command line."""
    quoted = read_arguments([*overrides], "train", TrainConfig)
    quoted = [override for override in quoted if "callback" not in override]
    with initialize_config_dir(str(CONFIGS), **VERSION):
        composed = compose("train", quoted, return_hydra_config=True)
    HydraConfig.instance().set_config(composed)
    with open_dict(composed):
        del composed["hydra"]
    return open_settings(plain_values(composed))


def parts(*overrides: str) -> Started:
    started = start(settings(*overrides), Ranks())
    assert isinstance(started, Started)
    return started


def equal(model: GPT, weights: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, weights[name]) for name, value in model.named_parameters())


def assert_locked(folder: Path) -> None:
    with pytest.raises(Timeout):
        FileLock(folder / "lock", timeout=0).acquire()


def test_a_new_run(tiny: Path) -> None:
    started = parts(*TINY, "run_dir=run", "seed=5", f"cache_dir={tiny / '.cache'}")
    torch.manual_seed(5)
    fresh = GPT(started.config.model, started.dataset.tokenizer.vocab_size)
    assert equal(started.model, dict(fresh.named_parameters()))
    assert started.state.step == 0 and started.optimizer.config == started.config.optimizer
    assert started.run.path == Path("run") and Path("run/config.yaml").is_file()
    assert_locked(Path("run"))


def test_a_resumed_run(run: Path, tiny: Path) -> None:
    """With its own settings and weights, and those of today on top."""
    started = parts("resume=run", "trainer.max_steps=9", f"cache_dir={tiny / '.cache'}")
    trainer = started.config.trainer
    assert (trainer.max_steps, trainer.batch_size, started.config.model.d_model) == (9, 4, 16)
    assert started.state.step == 6
    stored = last_checkpoint(run)
    assert equal(started.model, load_file(stored / "model.safetensors"))
    state, expected = started.optimizer.state_tensors(), load_file(stored / "optimizer.safetensors")
    assert state.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in state.items())
    assert_locked(run)


def test_a_finished_run_is_its_result(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert start(settings("resume=run"), Ranks()) == summary["val_bpb"]


def test_a_finetuned_run(run: Path, tiny: Path) -> None:
    """With the model and tokenizer of the other run, and a new optimizer."""
    cut = ("model.dropout=0.25", "model.context_length=16")
    more = ("init_from=run", *cut, "run_dir=tuned", f"cache_dir={tiny / '.cache'}")
    others = [each for each in TINY if not each.startswith(("model.", "tokenizer."))]
    started = parts(*others, *more)
    model = started.config.model
    assert (model.d_model, model.dropout, model.context_length) == (16, 0.25, 16)
    assert started.dataset.tokenizer.digest == Tokenizer.load(run / "tokenizer").digest
    assert equal(started.model, load_file(last_checkpoint(run) / "model.safetensors"))
    assert started.state.step == 0
    assert started.config.init_from == str(run.resolve())


def test_an_experiment_can_set_what_is_free_in_finetuning(run: Path) -> None:
    """Also by one that it is built on. What is stored of the model is else what the other run has:
    null for derived sizes."""
    stored = read_settings(run / "config.yaml")["model"]
    Path("configs/experiment").mkdir(parents=True)
    mine = "# @package _global_\ndefaults: [finetune, _self_]\nseed: 3\n"
    Path("configs/experiment/mine.yaml").write_text(mine)
    place = f"hydra.searchpath=[file://{Path('configs').resolve()}]"
    for name, seed, dropout in (("null", 1, 0.0), ("finetune", 1, 0.1), ("mine", 3, 0.1)):
        tuned = settings("init_from=run", f"experiment={name}", "run_dir=tuned", place)
        assert (tuned.config.seed, tuned.config.model.dropout) == (seed, dropout)
        assert tuned.values["model"] == stored | {"dropout": dropout}


def test_the_last_value_of_a_setting_counts(run: Path) -> None:
    auto = ("resume=auto", "run_dir=auto")
    parts(*TINY, *auto, "seed=5", "seed=6")
    assert settings(*TINY, *auto, "seed=6").config.seed == 6
    with pytest.raises(UserError, match=r"run_dir: auto was started with other settings \(seed\)"):
        settings(*TINY, *auto, "seed=6", "seed=5")


def test_data_that_the_command_does_not_name_is_not_trusted(run: Path) -> None:
    """A run can come from somebody else, with the command that it is continued by."""
    auto = (*TINY, "resume=auto", "run_dir=run")
    assert settings(*auto).trusts_data
    configure(run, lambda stored: stored["data"].update(n_bytes=10**12))
    assert not settings(*auto).trusts_data
    shutil.rmtree(last_checkpoint(run))  # there is something to train
    with pytest.raises(UserError, match=r"^data\.n_bytes: "):
        start(settings(*auto), Ranks())


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["resume=run", "trainer.max_steps=${seed}"], "trainer.max_steps: is taken from other"),
        (["resume=run", "model.d_model=32"], "resume: model.d_model cannot change"),
        (["resume=run", "init_from=run"], "init_from: cannot be combined with resume"),
        (["init_from=run", "model.n_layers=3"], "model.n_layers: cannot be set with init_from"),
        (["init_from=run", "model.context_length=64"], "model.context_length: 64 is longer"),
        (["init_from=run", "model.norm=layernorm", "model.bias=true"], "model.bias, model.norm: "),
        (["resume=auto"], "add run_dir=runs/NAME"),
    ],
)
def test_settings_that_contradict_each_other(run: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(UserError) as error:
        settings(*overrides)
    assert said in str(error.value)
