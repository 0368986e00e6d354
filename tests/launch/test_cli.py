"""Hydra's own parser, settings without a command line, and hostile values of every setting of every
script: they build, or end in one line."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hydra import initialize_config_dir
from hydra._internal.utils import get_args_parser
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.program import TensorBoard

from benchmarks.harness import Shape, configure
from common.settings import all_settings, build
from data.shakespeare import ShakespeareConfig
from launch.cli import VERSION, accept_any_help
from launch.quoting import CONFIGS
from launch.sweep import not_in_names
from tests.conftest import SCRIPTS, command, settings_of, succeed

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
    values = ("experiment=shakespeare_fast", f"data.path={path}", "name=1", "seed=7")
    config = configure(Shape(8, 256, 1, 2, d_model=4), *values)
    assert isinstance(config.data, ShakespeareConfig) and config.data.path == path
    assert config.name == "1" and config.seed == 7 and config.model.n_heads == 2


def test_the_help_lists_every_choice(tmp_path: Path) -> None:
    printed = succeed("train", "--help", cwd=tmp_path)
    for group in ("data", "tokenizer", "model", "optimizer", "experiment"):
        listed = next(line for line in printed.splitlines() if line.strip().startswith(f"{group}="))
        files = sorted(path.stem for path in (CONFIGS / group).iterdir())
        assert listed.partition("=")[2].strip().split(", ") == files


NAMES = [(script, name) for script in SCRIPTS for name in all_settings(settings_of(script))]
NAMES += [("train", "experiment"), ("train", "hydra.sweep.dir"), ("train", "nonsense.deep")]
WORDS = (
    *("", "null", "true", "nan", "-inf", "1e999", "-1", "0", "0.5", "1e-320", "1_000", "0x10"),
    *("9" * 30, "9" * 5000, "1" * 400, "n" * 300, "~nouser/x", "-", "--", "?" * 3, "a,b", "[", "]"),
    *("[1, 2]", "[a, b]", "[]", "{}", "{a: 1}", "{a: {b: [c]}}", "{1: 2}", "(", "range(1, 9)"),
    *("choice(1, 2)", "${x}", "${", "${seed}", "${now:%Y}", "${oc.env:HOME}", "$ {", "\\", "\\'"),
    *("'", '"', "'a'", '"b"', "'a", "=", "==", "a=b", "#", "%", ":", "a: b", "\n", "\x1b[0m"),
    *("\udcff", "\ud800", "\u202e", "\u00fc", "\u732b", "\U0001f9c0", " ", "\t", "/dev/null"),
    "2026-01-01",
)
values = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=30),
    st.integers().map(str),
    st.floats().map(repr),
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=4).map("".join),
).filter(lambda value: "\0" not in value)  # which no command line can contain
arguments = st.tuples(st.sampled_from(NAMES), st.sampled_from(["", "", "", "+", "++", "~"]), values)


def check(setting: tuple[str, str], sign: str, value: str, folder: Path) -> None:
    """Compose and build as the script does, and check how that ends."""
    script, name = setting
    group = f"data={'text' if name.endswith(('path', 'separator')) else 'tales'}"
    extra = [group] if name.startswith("data.") else []
    kind = settings_of(script)
    module = importlib.import_module(script)
    with patch.object(module, "main", lambda values: build(kind, values)):
        done = command(script, *extra, f"{sign}{name}={value}", cwd=folder)
    assert done.returncode in (0, 2)
    assert len(done.stderr.splitlines()) == (1 if done.returncode else 0), done.stderr
    assert done.stderr.startswith("error: ") or not done.returncode
    assert not list(folder.iterdir())


@pytest.mark.parametrize("n", [15, pytest.param(100, marks=pytest.mark.long)])
def test_hostile_values(tmp_path: Path, n: int) -> None:
    @settings(max_examples=n, derandomize=True)
    @given(arguments)
    def check_some(argument: tuple[tuple[str, str], str, str]) -> None:
        check(*argument, tmp_path)

    check_some()
