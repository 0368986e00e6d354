"""Hostile values of every setting of every script: they build, or end in one line."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.settings import Values, all_settings, build
from launch.cli import run_script
from tests.conftest import SCRIPTS, settings_of

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

    def main(values: Values) -> None:
        build(kind, values)

    errors, status = io.StringIO(), 0
    before = Path.cwd()
    os.chdir(folder)
    argv, sys.argv = sys.argv, [f"{script}.py", *extra, f"{sign}{name}={value}"]
    try:
        with patch.dict(os.environ), contextlib.redirect_stderr(errors):
            run_script(script, main, kind)
    except SystemExit as exit:
        status = int(exit.code or 0)
    finally:
        sys.argv = argv
        os.chdir(before)
    shown = errors.getvalue()
    assert status in (0, 2)
    assert len(shown.splitlines()) == (1 if status else 0), shown
    assert shown.startswith("error: ") or not status
    assert not list(folder.iterdir())


@pytest.mark.parametrize("n", [15, pytest.param(100, marks=pytest.mark.long)])
def test_hostile_values(tmp_path: Path, n: int) -> None:
    @settings(max_examples=n, derandomize=True)
    @given(arguments)
    def check_some(argument: tuple[tuple[str, str], str, str]) -> None:
        check(*argument, tmp_path)

    check_some()
