"""Runs and caches that somebody else made, or that were damaged: one line, no hang, no harm."""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import shutil
import socket
from pathlib import Path

import pytest
import torch

from common.errors import UserError
from inference.opening import open_run
from store.checkpoint import STATE
from store.weights import OPTIMIZER
from tests.conftest import PLAIN, TINY, command, configure, refused, rewrite, seal, succeed

SCRIPTS = {
    "train": ("resume=run", "trainer.max_steps=8"),
    "evaluate": ("run=run",),
    "look": ("run=run", "text=hen"),
}


def assert_refused(here: Path, script: str, *words: str) -> None:
    line = refused(script, *SCRIPTS[script], cwd=here)
    assert all(word in line for word in words), line


def assert_not_opened(here: Path, *words: str) -> None:
    """Sampling, evaluating and looking begin with `open_run`. Training has its own beginning."""
    with pytest.raises(UserError) as caught:
        open_run(here / "run", "last")
    line = str(caught.value)
    assert "\n" not in line and all(word in line for word in words), line


@pytest.mark.parametrize("state", [{"step": -5}, {"tokens": "six"}, {"more": 1}])
def test_a_state_that_cannot_be(here: Path, state: dict[str, object]) -> None:
    for folder in (here / "run/checkpoints").glob("step-*"):
        seal(folder, **state)
    assert_not_opened(here, STATE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("d_model", 32_000),
        ("n_layers", 90),
        ("context_length", 10**9),  # no weight has this size: rotary positions are computed
    ],
)
def test_sizes_are_compared_with_the_weights_before_memory_is_taken(
    here: Path, name: str, value: int
) -> None:
    configure(here / "run", lambda settings: settings["model"].update({name: value}))
    assert_refused(here, "train")
    assert_not_opened(here)


@pytest.mark.parametrize("kind", ["nan", "integers", "missing"])
def test_weights_that_are_no_weights_are_named(here: Path, kind: str) -> None:
    name = "blocks.1.mlp.down.weight"

    def change(weights: dict[str, torch.Tensor]) -> None:
        if kind == "integers":
            weights[name] = weights[name].int()
        elif kind == "missing":
            del weights[name]
        else:
            weights[name][0, 0] = math.nan

    rewrite(here / "run", change)
    assert_not_opened(here, name)
    if kind == "nan":
        assert_refused(here, "train", name)


def test_an_optimizer_state_that_is_not_finite_numbers(here: Path) -> None:
    rewrite(here / "run", lambda state: next(iter(state.values())).fill_(math.nan), OPTIMIZER)
    assert_refused(here, "train", "optimizer.safetensors", "finite")


def test_no_address_of_a_run_is_fetched_and_no_cache_folder_made(tmp_path: Path) -> None:
    """Until the user gives them."""
    text = "Speak, speak. " * 2000
    source = tmp_path / "input.txt"
    source.write_text(text)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    settings = [each for each in PLAIN if not each.startswith("data.")]
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


ALIASES = "".join(f"- &x{i} [{', '.join([f'*x{i - 1}'] * 9) if i else 'word'}]\n" for i in range(6))


@pytest.mark.parametrize(
    ("file", "text"), [(".hydra/overrides.yaml", ALIASES), ("resumed.yaml", "{a: 3}")]
)
def test_a_file_of_settings_that_cannot_be(here: Path, file: str, text: str) -> None:
    (here / "run" / file).write_text(text)
    line = refused("train", *TINY, "resume=auto", "run_dir=run", cwd=here)
    assert line.startswith(f"error: run/{file}: ")


def test_a_terabyte_of_tales_needs_the_users_word(here: Path) -> None:
    configure(here / "run", lambda settings: settings["data"].update(n_bytes=10**12))
    for script in ("train", "evaluate"):
        assert_refused(here, script, "data.n_bytes")


def test_control_characters_are_escaped(here: Path) -> None:
    name = "evil\x1b[31m\nname"
    rewrite(here / "run", lambda weights: weights.update({name: torch.zeros(2)}))
    assert_refused(here, "evaluate", r"evil\x1b[31m name")


class Payload:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "kind", [0, *(pytest.param(each, marks=pytest.mark.long) for each in range(1, 8))]
)
def test_nothing_in_a_run_is_executed(here: Path, kind: int) -> None:
    """Each file of a run and of the cache is replaced by a malicious pickle or a `_target_`: every
    eighth one by the same."""
    sprung = here / "sprung"
    planted = b"_target_: os.mkdir\npath: sprung\n"
    if kind % 4 < 3:
        planted = pickle.dumps(Payload(sprung), (0, 2, 5)[kind % 4])
        with pytest.raises(FileExistsError):  # the payload works
            pickle.loads(planted), pickle.loads(planted)
        sprung.rmdir()
    places = [
        path.relative_to(here)
        for path in sorted([*(here / "run").rglob("*"), *(here / ".cache").rglob("*")])
        if path.is_file() and path.name != "lock" and "step-000003" not in path.parts
    ]
    assert len(places) > 15

    for number, place in [*enumerate(places)][kind::8]:
        copied = here / str(number)
        for folder in ("run", ".cache"):
            shutil.copytree(here / folder, copied / folder)
        (copied / place).write_bytes(planted)
        is_read_by_train_alone = place.suffix in (".jsonl", ".bin") or place.parts[0] == ".cache"
        script, *settings = (
            ("train", "resume=run", "trainer.max_steps=8")
            if is_read_by_train_alone or number // 8 % 2
            else ("sample", "run=run", "max_new_tokens=5")
        )
        done = command(script, *settings, cwd=copied)
        assert done.returncode in (0, 2), f"{place}: {done.stderr}"
        assert "Traceback" not in done.stderr, f"{place}: {done.stderr}"
        assert not (copied / "sprung").exists() and not sprung.exists(), place
