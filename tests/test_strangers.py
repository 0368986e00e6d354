"""Runs and caches that somebody else made, or that were damaged: one line, no hang, no harm."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import pty
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
from rich.console import Console
from rich.file_proxy import FileProxy

from common.errors import UserError, print
from common.files import write_sums
from data.encoding import read_tokens
from data.tokenizer import fixed_tokenizer
from inference.opening import open_run
from tests.conftest import TINY, command, files, last_checkpoint, seal, succeed
from training import checkpoint

SCRIPTS = {
    "train": ("resume=run", "trainer.max_steps=8"),
    "evaluate": ("run=run",),
    "look": ("run=run", "text=hen"),
}


@pytest.fixture
def here(tiny: Path, tiny_run: Path, tmp_path: Path) -> Path:
    """A folder with a copy of a run and its cache."""
    folder = tmp_path / "here"
    shutil.copytree(tiny_run, folder / "run", symlinks=True)
    shutil.copytree(tiny / ".cache", folder / ".cache")
    return folder


def assert_refused(here: Path, script: str, *words: str) -> None:
    before = files(here.parent)
    done = command(script, *SCRIPTS[script], cwd=here)
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in ("error: ", *words):
        assert word in done.stderr
    assert files(here.parent) == before


def assert_not_opened(here: Path, *words: str) -> None:
    """Sampling, evaluating and looking begin with `open_run`. Training has its own beginning."""
    with pytest.raises(UserError) as caught:
        open_run(here / "run", "last")
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def configure(run: Path, change: Callable[[dict], object]) -> None:
    file = run / "config.yaml"
    settings = yaml.safe_load(file.read_text())
    change(settings)
    file.write_text(yaml.safe_dump(settings))


def rewrite(
    run: Path, change: Callable[[dict[str, torch.Tensor]], object], name: str = checkpoint.MODEL
) -> None:
    """Change the tensors in a file of every checkpoint of a run, and the checksums with them."""
    for folder in (run / "checkpoints").glob("step-*"):
        tensors = safetensors.torch.load_file(folder / name)
        change(tensors)
        safetensors.torch.save_file(tensors, folder / name)
        seal(folder)


@pytest.mark.parametrize("script", ["train", "look", "evaluate"])
@pytest.mark.parametrize("name", ["train.log", "checkpoints", "deep/link"])
def test_a_run_with_a_link_is_refused(here: Path, script: str, name: str) -> None:
    outside = here.parent / "outside"
    mine = here / "run" / name
    mine.parent.mkdir(exist_ok=True)
    if mine.exists():
        mine.rename(outside)
    else:
        outside.mkdir()
    mine.symlink_to(outside)
    assert_refused(here, script, name, "is a link")


def test_no_other_run_is_written_to(here: Path) -> None:
    theirs = here / "theirs/run"
    shutil.copytree(here / "run", theirs, symlinks=True)
    (theirs / "config.yaml").unlink()
    (theirs / "config.yaml").symlink_to(here / "run/config.yaml")
    for script in ("train", "look"):
        settings = [each.replace("=run", "=theirs/run") for each in SCRIPTS[script]]
        before = files(here)
        done = command(script, *settings, cwd=here)
        assert done.returncode == 2 and "is a link" in done.stderr
        assert files(here) == before


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [pipe, loop])
@pytest.mark.parametrize(
    "name",
    [
        "config.yaml",
        "data.json",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer.tiktoken",
        "metrics.jsonl",
        "train.log",
        "resumed.yaml",
    ],
)
def test_files_that_are_no_files(here: Path, name: str, make: Callable[[Path], None]) -> None:
    make(here / "run" / name)
    assert_refused(here, "train")
    if name.startswith(("config", "tokenizer")):
        assert_not_opened(here)


@pytest.mark.parametrize("make", [pipe, loop])
@pytest.mark.parametrize("name", [*checkpoint.FILES, checkpoint.STATE])
def test_checkpoints_whose_files_are_no_files(
    here: Path, name: str, make: Callable[[Path], None]
) -> None:
    for step in (3, 6):
        make(here / f"run/checkpoints/step-00000{step}" / name)
    assert_refused(here, "train")
    assert_not_opened(here)


def test_events_that_are_a_pipe(here: Path) -> None:
    events, *_ = (here / "run").glob("events.*")
    pipe(events)
    assert_refused(here, "train", events.name)


@pytest.mark.parametrize(
    "state",
    [
        {"step": -5},
        {"step": 1e30},
        {"step": True},
        {"step": 10**30},
        {"seconds": -1},
        {"tokens": "six"},
        {"best_val_loss": float("nan")},
        {"more": 1},
        "[" * 100_000,
        "[]",
        "",
    ],
)
def test_a_state_that_cannot_be(here: Path, state: object) -> None:
    for step in (3, 6):
        folder = here / f"run/checkpoints/step-00000{step}"
        if isinstance(state, dict):
            seal(folder, **state)
        else:
            (folder / checkpoint.STATE).write_text(str(state))
    assert_not_opened(here, checkpoint.STATE)
    if state in ({"step": -5}, "[" * 100_000):
        assert_refused(here, "train", checkpoint.STATE)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nmodel: [*b, *b]\n",
        "model: " + "[" * 20_000,
        "a: b\n" * 100_000,
        "seed: 2026-99-99\n",
        "- 1\n",
        "",
        "\0",
    ],
)
def test_settings_that_are_not_those_of_a_run(here: Path, text: str) -> None:
    (here / "run/config.yaml").write_text(text)
    assert_refused(here, "train", "config.yaml")
    assert_not_opened(here, "config.yaml")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("d_model", 32_000),
        ("n_layers", 90),
        pytest.param("n_layers", 900, marks=pytest.mark.long),
        ("d_mlp", 1000),
        ("tied_embeddings", None),
    ],
)
def test_sizes_are_compared_with_the_weights_before_memory_is_taken(
    here: Path, name: str, value: int | None
) -> None:
    def change(settings: dict) -> None:
        model = settings["model"]
        model[name] = not model[name] if value is None else value

    configure(here / "run", change)
    assert_refused(here, "train")
    assert_not_opened(here)


@pytest.mark.parametrize("length", [60_000_000, 10**9])
def test_a_context_that_does_not_fit_into_memory(here: Path, length: int) -> None:
    """No weight has this size: rotary positions are computed."""
    configure(here / "run", lambda settings: settings["model"].update(context_length=length))
    assert_not_opened(here, "context_length", "out of range")


@pytest.mark.parametrize("kind", ["nan", "inf", "integers", "missing", "more"])
def test_weights_that_are_no_weights_are_named(here: Path, kind: str) -> None:
    name = "blocks.7.extra" if kind == "more" else "blocks.1.mlp.down.weight"

    def change(weights: dict[str, torch.Tensor]) -> None:
        if kind == "integers":
            weights[name] = weights[name].int()
        elif kind == "missing":
            del weights[name]
        elif kind == "more":
            weights[name] = torch.zeros(2)
        else:
            weights[name][0, 0] = float(kind)

    rewrite(here / "run", change)
    assert_not_opened(here, name)
    if kind == "nan":
        assert_refused(here, "train", name)


@pytest.mark.parametrize("pattern", ["", "x", r"\p{L}+", "(", None, r"(?=(a+)+$)b|(?s:.)"])
def test_a_pattern_of_a_stranger_is_not_used(here: Path, pattern: str | None) -> None:
    folder = here / "run/tokenizer"
    metadata = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**metadata, "pattern": pattern}))
    write_sums(folder, ("tokenizer.json", "tokenizer.tiktoken"))
    assert_not_opened(here, "tokenizer")
    if pattern == "":
        for script in SCRIPTS:
            assert_refused(here, script, "tokenizer")


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("kind", ["nan", "integers"])
def test_an_optimizer_state_that_is_not_finite_numbers(here: Path, kind: str) -> None:
    def change(state: dict[str, torch.Tensor]) -> None:
        name = sorted(state)[0]
        state[name] = torch.full_like(state[name], math.nan) if kind == "nan" else state[name].int()

    rewrite(here / "run", change, checkpoint.OPTIMIZER)
    assert_refused(here, "train", "optimizer.safetensors", "finite")


def test_a_run_that_has_taken_no_time(here: Path) -> None:
    for folder in (here / "run/checkpoints").glob("step-*"):
        seal(folder, seconds=0)
    (here / "run/summary.json").unlink()
    succeed("train", "resume=run", cwd=here)


@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
def test_a_folder_in_place_of_a_file_of_a_checkpoint(here: Path, name: str) -> None:
    file = last_checkpoint(here / "run") / name
    file.unlink()
    file.mkdir()
    succeed("train", "resume=run", "trainer.max_steps=8", cwd=here)
    assert json.loads((here / "run/summary.json").read_text())["steps"] == 8


def test_a_flipped_bit_of_the_tokenizer(here: Path) -> None:
    file = here / "run/tokenizer/tokenizer.json"
    file.write_text(file.read_text().replace("{1,3}", "{1,2}"))
    assert_not_opened(here, "tokenizer")


@pytest.mark.parametrize("name", ["train.bin", "val.bin", "meta.json", "SHA256SUMS"])
@pytest.mark.parametrize("how", ["flipped", "missing", "bytes", "deep", "folder"])
def test_a_damaged_cache_is_made_again(here: Path, name: str, how: str) -> None:
    digest = json.loads((here / "run/data.json").read_text())["tokens_sha256"]
    # Other tests have put other texts into the cache.
    (meta,) = (
        each
        for each in (here / ".cache").glob("tokens-*/meta.json")
        if (found := read_tokens(each.parent, fixed_tokenizer("byte"))) and found.sha256 == digest
    )
    file = meta.with_name(name)
    whole = file.read_bytes()
    if how in ("missing", "folder"):
        file.unlink()
        if how == "folder":
            file.mkdir()
    elif how == "flipped":
        flipped = np.frombuffer(whole, np.uint8).copy()
        flipped[::40] ^= 1
        file.write_bytes(flipped.tobytes())
    else:
        file.write_bytes(b"\xff" * 100 if how == "bytes" else b"[" * 100_000)
    done = command("evaluate", "run=run", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "encoding the text again" in done.stderr and len(done.stderr.splitlines()) == 1
    assert file.read_bytes() == whole


def test_no_address_of_a_run_is_fetched_and_no_cache_folder_made(tmp_path: Path) -> None:
    """Until the user gives them."""
    text = "Speak, speak. " * 2000
    source = tmp_path / "input.txt"
    source.write_text(text)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    settings = [each for each in TINY if not each.startswith("data.")]
    chosen = ("data=shakespeare", f"data.sha256={sha256}")
    succeed("train", *settings, *chosen, f"data.path={source}", "run_dir=run", cwd=tmp_path)
    shutil.rmtree(tmp_path / ".cache")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"

        def change(settings: dict) -> None:
            settings["data"].update(path=None, url=url, cache_dir=str(tmp_path / "theirs"))
            settings["cache_dir"] = str(tmp_path / "theirs too")

        configure(tmp_path / "run", change)
        for script in ("train", "evaluate"):
            assert_refused(tmp_path, script, "data.url")
        command("train", *SCRIPTS["train"], "data=shakespeare", cwd=tmp_path)  # says no place
        with pytest.raises(TimeoutError):
            server.accept()
        mine = (f"data.path={source}", "data=shakespeare", f"data.sha256={sha256}")
        succeed("train", *SCRIPTS["train"], *mine, cwd=tmp_path)
        succeed("evaluate", *SCRIPTS["evaluate"], *mine, cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"input.txt", "run", ".cache"}


def test_a_terabyte_of_tales_needs_the_users_word(here: Path) -> None:
    configure(here / "run", lambda settings: settings["data"].update(n_bytes=10**12))
    for script in ("train", "evaluate"):
        assert_refused(here, script, "data.n_bytes")


def test_control_characters_are_escaped(here: Path, tmp_path: Path) -> None:
    name = "evil\x1b[31m\nname"
    rewrite(here / "run", lambda weights: weights.update({name: torch.zeros(2)}))
    assert_refused(here, "evaluate", r"evil\x1b[31m name")
    (tmp_path / "mix").mkdir()
    (tmp_path / "mix/a\x1b[31m.bin").write_bytes(b"\xff")
    (tmp_path / "mix/b.txt").write_text("Once. " * 2000)
    settings = [each for each in TINY if not each.startswith(("data.", "tokenizer."))]
    text = ("data=text", "data.path=mix", "tokenizer=byte")
    output = succeed("train", *settings, *text, cwd=tmp_path)
    assert r"mix/a\x1b[31m.bin" in output and "\x1b" not in output


def test_only_a_terminal_gets_control_characters_as_escapes() -> None:
    """Also through the stream that Rich puts in its place while it shows a bar."""
    characters = [chr(code) for code in (*range(32), *range(127, 160), 0x202E, 0x2066, 0x2069)]
    text = "é\u200d\u3000".join(characters)
    reader, writer = pty.openpty()
    with open(writer, "w", encoding="utf-8", newline="\n") as terminal:  # noqa: PTH123
        print(text, file=terminal, flush=True)
        shown = os.read(reader, 4096).decode().replace("\r\n", "\n")
        proxy: Any = FileProxy(Console(file=terminal, color_system=None), terminal)
        print(text.replace("\t", ""), file=proxy)  # Rich expands tabs
        terminal.flush()
        through_rich = os.read(reader, 4096).decode()
    os.close(reader)
    kept = [c if c in "\n\t" else c.encode("unicode_escape").decode() for c in characters]
    expected = "é\u200d\u3000".join(kept) + "\n"
    assert shown == expected
    assert "".join(through_rich.split()) == "".join(expected.split())
    file = io.StringIO(newline="")
    print(text, file=file)
    assert file.getvalue() == text + "\n"


def test_a_text_of_a_run_that_never_ends_is_not_read(here: Path) -> None:
    def change(settings: dict) -> None:
        settings["data"] = {
            **{"name": "text", "path": "/dev/zero"},
            **{"val_fraction": 0.1, "separator": None},
        }

    configure(here / "run", change)
    for script in ("train", "evaluate"):
        assert_refused(here, script, "/dev/zero")
