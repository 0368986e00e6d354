"""Hydra's own parser, under every Python; settings that are composed without a command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra._internal.utils import get_args_parser
from tensorboard.program import TensorBoard

from benchmarks.harness import Shape, configure
from data.shakespeare import ShakespeareConfig
from launch.cli import VERSION, accept_any_help
from launch.quoting import CONFIGS
from launch.sweep import not_in_names
from tests.conftest import succeed

add_argument = argparse._ActionsContainer.add_argument


def add_and_check(self: Any, *names: Any, help: Any = None, **options: Any) -> argparse.Action:
    """`add_argument`, which since Python 3.14 wants a help that is a string."""
    if not isinstance(help, str | None):
        raise ValueError("badly formed help string")
    return add_argument(self, *names, help=help, **options)


def test_pythons_check_of_help_accepts_hydras_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argparse._ActionsContainer, "add_argument", add_and_check)
    monkeypatch.setattr(argparse.ArgumentParser, "add_argument", add_and_check)
    with pytest.raises(ValueError, match="badly formed help string"):
        get_args_parser()  # once this succeeds, `accept_any_help` can go
    accept_any_help()
    helps = {action.dest: str(action.help) for action in get_args_parser()._actions}
    assert "Install" in helps["shell_completion"]
    assert helps["version"] == "Show Hydra's version and exit"
    # Other parsers of the process: an option of TensorBoard's requires its help.
    assert TensorBoard().configure(logdir=".", port=0)


def test_the_names_of_folders_have_room_for_some_settings() -> None:
    values = {
        "data.path": "texts/a.txt,texts/b.txt",  # no folder is called so
        "seed": "choice(3)",  # the same in all runs
        "trainer.max_steps": "100",
        "optimizer.lr": "range(1, 4)",
        "name": "a,b",
        "observe.attention.probe": f"'{'ü' * 60}','{'n' * 60}'",  # 60 letters, 120 bytes
        "observe.samples.prompt": f"{'o' * 60},{'p' * 60}",
        "cache_dir": "q,r",
    }
    with initialize_config_dir(str(CONFIGS), **VERSION):
        left_out = [*not_in_names([f"{name}={value}" for name, value in values.items()])]
    assert [name for name in values if name not in left_out] == [
        *("optimizer.lr", "name", "observe.samples.prompt", "cache_dir"),
    ]


def test_benchmarks_read_settings_as_the_command_line_does() -> None:
    path = "/a folder/it's {1}, 2=${x}.txt"
    given = ("experiment=shakespeare_fast", f"data.path={path}", "name=1", "seed=7")
    config = configure(Shape(8, 256, 1, 2, d_model=4), *given)
    assert isinstance(config.data, ShakespeareConfig) and config.data.path == path
    assert config.name == "1" and config.seed == 7 and config.model.n_heads == 2


def test_the_help_lists_every_choice(tmp_path: Path) -> None:
    printed = succeed("train", "--help", cwd=tmp_path)
    for group in ("data", "tokenizer", "model", "optimizer", "experiment"):
        listed = next(line for line in printed.splitlines() if line.strip().startswith(f"{group}="))
        files = sorted(path.stem for path in (CONFIGS / group).iterdir())
        assert listed.partition("=")[2].strip().split(", ") == files
