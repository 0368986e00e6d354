"""Helpers that run the real command line, and a small training run that many tests share."""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock

import pytest
import torch
from hypothesis import settings

from configs.schema import preset
from model import ModelConfig

# The first call of a kernel is slow, and no test asserts timings.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

ROOT = Path(__file__).resolve().parent.parent

# A model that trains in a second or two.
TINY_MODEL = (
    "model.n_layers=2",
    "model.n_heads=2",
    "model.d_model=16",
    "model.context_length=32",
    "tokenizer.vocab_size=300",
)
TINY = (
    *TINY_MODEL,
    "data.n_bytes=60000",
    "trainer.max_steps=6",
    "trainer.batch_size=4",
    "trainer.eval_every=3",
    "trainer.eval_tokens=all",
    "trainer.checkpoint_every=3",
    "trainer.log_every=2",
    "observe.attention.every=3",
    "observe.attention.images_every=3",
    "observe.samples.max_new_tokens=20",
    "observe.samples.every=3",
)


NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")
ON_GPU = pytest.param("cuda", marks=NEEDS_GPU)
every_device = pytest.mark.parametrize("device", ["cpu", ON_GPU])
# Compiling takes long on a CPU, for which most runs are not compiled.
every_compiled_device = pytest.mark.parametrize(
    "device",
    [
        pytest.param(
            "cpu",
            marks=[
                pytest.mark.long,
                pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler"),
            ],
        ),
        ON_GPU,
    ],
)


def small_config(
    n_layers: int, n_heads: int, d_model: int, context_length: int, **choices: object
) -> ModelConfig:
    """Return the config of the default model with the given sizes."""
    sizes = {"n_layers": n_layers, "n_heads": n_heads, "d_model": d_model}
    return preset("model", "nano", **sizes, context_length=context_length, **choices)


Command = Callable[..., subprocess.CompletedProcess[str]]


ONE_AT_A_TIME = Lock()


@cache
def zygote() -> subprocess.Popen[str]:
    """Start the process that runs scripts in forks of itself; see `tests/zygote.py`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.zygote"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def command(
    script: str, *arguments: str, cwd: Path, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `python <script>.py <arguments>` in `cwd`.

    The script runs in a fork of a process that has already imported PyTorch. If `environment` sets
    variables, it runs in a new interpreter instead.
    """
    path = str(ROOT / f"{script}.py")
    if environment:
        return subprocess.run(
            [sys.executable, path, *arguments],
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, **environment},
        )
    with tempfile.TemporaryDirectory() as folder:
        streams = {name: Path(folder) / name for name in ("stdin", "stdout", "stderr")}
        streams["stdin"].write_text(stdin)
        request = {
            **{name: str(file) for name, file in streams.items()},
            **{"script": path, "arguments": arguments, "cwd": str(cwd)},
        }
        with ONE_AT_A_TIME:
            process = zygote()
            assert process.stdin and process.stdout
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            status = int(process.stdout.readline())
        output, errors = (
            streams[name].read_text(errors="backslashreplace") for name in ("stdout", "stderr")
        )
    return subprocess.CompletedProcess([path, *arguments], status, output, errors)


def succeed(script: str, *arguments: str, cwd: Path, stdin: str = "") -> str:
    """Run a command that must succeed, and return its standard output."""
    done = command(script, *arguments, cwd=cwd, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def begin(*arguments: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """Start Python in the background, on one thread so that runs are reproducible."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a process that must succeed, and return its standard output."""
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def files(folder: Path) -> dict[str, bytes | None]:
    """Map every path below `folder` to its contents, or to None if it is not a file."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one tiny trained run, which `runs/latest` points to."""
    folder = tmp_path_factory.mktemp("a folder with spaces")
    output = succeed("train", *TINY, cwd=folder)
    (folder / "output.txt").write_text(output)
    return folder


@pytest.fixture(scope="session")
def tiny_run(tiny: Path) -> Path:
    """The directory of the run in `tiny`."""
    (run,) = (path for path in (tiny / "runs").iterdir() if path.name != "latest")
    return run
