"""Helpers that run the real command line, and a small training run that many tests share."""

from __future__ import annotations

import os

# Before PyTorch is imported, and also for the processes that tests start: operations on tiny
# tensors are slower with two threads, above all if tests run on every core.
os.environ["OMP_NUM_THREADS"] = "1"

import common.startup  # noqa: F401  # isort: skip

import hashlib
import importlib
import io
import json
import logging
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import safetensors.torch
import torch
import yaml
from hydra.core.hydra_config import HydraConfig
from hypothesis import settings
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from launch.cli import run_script
from launch.schema import preset
from model import ModelConfig
from store.weights import MODEL

# What a CPU computes fast is measured: tests that compare runs would depend on it.
if not torch.cuda.is_available():
    os.environ["GLASSGPT_NO_BF16"] = "1"

# The first call of a kernel is slow, and no test asserts timings.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

ROOT = Path(__file__).resolve().parent.parent

# A model that trains in a second or two.
TINY = (
    "model.n_layers=2",
    "model.n_heads=2",
    "model.d_model=16",
    "model.context_length=32",
    "tokenizer.vocab_size=300",
    "data.n_bytes=60000",
    "trainer.max_steps=6",
    "trainer.batch_size=4",
    "trainer.eval_every=3",
    "trainer.eval_tokens=all",
    "trainer.checkpoint_every=3",
    "trainer.log_every=2",
    "observe.attention.every=3",
    "observe.samples.max_new_tokens=20",
    "observe.samples.every=3",
)
PLAIN = (*TINY, "observe.tensorboard=false")  # in two thirds of the time

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")
ON_GPU = pytest.param("cuda", marks=NEEDS_GPU)
every_device = pytest.mark.parametrize("device", ["cpu", ON_GPU])


def small_config(
    n_layers: int, n_heads: int, d_model: int, context_length: int, **choices: object
) -> ModelConfig:
    """Return the config of the default model with the given sizes."""
    sizes = {"n_layers": n_layers, "n_heads": n_heads, "d_model": d_model}
    return preset("model", "nano", **sizes, context_length=context_length, **choices)


SCRIPTS = ("train", "sample", "evaluate", "look", "compare", "convert", "shapes", "verdict")


def settings_of(script: str) -> type:
    """The dataclass of the settings of a script."""
    return getattr(importlib.import_module(script), f"{script.title()}Config")


def command(
    script: str, *arguments: str, cwd: Path, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `python <script>.py <arguments>` in `cwd`.

    In this process, which has already imported PyTorch; if `environment` sets variables, in a new
    interpreter. The folder, arguments, streams, environment, log and settings of Hydra are restored
    afterwards, and the state of random generators is not.
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
    streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8") for name in ("stdout", "stderr")}
    given = io.TextIOWrapper(io.BytesIO(os.fsencode(stdin)), "utf-8")
    status: object = 0
    with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ), shown_warnings():
        patch.chdir(cwd)
        patch.setattr(sys, "argv", [path, *arguments])
        patch.setattr(threading, "excepthook", threading.excepthook)
        for name, stream in {**streams, "stdin": given}.items():
            patch.setattr(sys, name, stream)
        try:
            run_script(script, importlib.import_module(script).main, settings_of(script))
        except SystemExit as end:
            status = end.code
        finally:
            HydraConfig.instance().cfg = None
            log = logging.getLogger("training")
            log.propagate = True
            for handler in log.handlers[:]:
                log.removeHandler(handler)
                handler.close()
    assert isinstance(status, int)
    for stream in streams.values():
        stream.seek(0)
    printed = {name: stream.read() for name, stream in streams.items()}
    return subprocess.CompletedProcess([path, *arguments], status, **printed)


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print warnings on standard error, and only those that Python shows by default."""

    def show(*warning: Any, **_: Any) -> None:
        sys.stderr.write(warnings.formatwarning(*warning[:4]))

    hidden = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for category in hidden:
            warnings.simplefilter("ignore", category)
        warnings.showwarning = show
        yield


def succeed(script: str, *arguments: str, cwd: Path, stdin: str = "", **environment: str) -> str:
    """Run a command that must succeed, and return its standard output."""
    done = command(script, *arguments, cwd=cwd, stdin=stdin, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(script: str, *arguments: str, cwd: Path, **environment: str) -> str:
    """Run a command that must end with one line of error and change nothing in its folder; return
    the line."""
    before = files(cwd)
    done = command(script, *arguments, cwd=cwd, **environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert files(cwd) == before
    return done.stderr


def begin(*arguments: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """Start Python in the background."""
    heed_signals()
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def heed_signals() -> None:
    """Processes that are started from now on heed signals. One that was started with nohup, by a
    shell in the background, or after a script has run in it, passes on that it ignores some, but
    not what handles them. With a `preexec_fn`, what libraries do after a fork would run in the new
    process: that of gRPC, which TensorBoard can load, may end it."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


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


def torchrun(
    ranks: int, script: Path, *arguments: str, cwd: Path, **environment: str
) -> subprocess.Popen[str]:
    """Start a script on several ranks."""
    flags = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}")
    path = {"PYTHONPATH": str(ROOT)}
    return begin(*flags, str(script), *arguments, cwd=cwd, **path, **environment)


def metrics(run: Path) -> list[dict[str, Any]]:
    """The complete lines of metrics.jsonl, without speeds and times, which differ between equal
    runs."""
    path = run / "metrics.jsonl"
    whole, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
    lines, clock = map(json.loads, whole.splitlines()), ("tokens_per_second", "seconds")
    return [
        {name: value for name, value in line.items() if not name.startswith(clock)}
        for line in lines
    ]


def logged(run: Path, tag: str = "attention") -> dict[int, tuple[dict[str, Any], bytes]]:
    """The attention maps that TensorBoard's own reader finds: header and maps by step."""
    found = {}
    for each in EventAccumulator(str(run)).Reload().Tensors(tag):
        header, maps = each.tensor_proto.string_val
        found[each.step] = (json.loads(header), maps)
    return found


def last_checkpoint(run: Path) -> Path:
    """The folder of the last checkpoint of a run."""
    return max((run / "checkpoints").glob("step-*"))


def seal(checkpoint: Path, **changes: Any) -> None:
    """Write state.json of a checkpoint anew, with some changes, and with the checksums of what the
    checkpoint now has."""
    state = json.loads((checkpoint / "state.json").read_text())
    del state["sha256"]
    state.update(changes)
    sums = {
        name: hashlib.sha256((checkpoint / name).read_bytes()).hexdigest()
        for name in ("model.safetensors", "optimizer.safetensors")
    }
    rest = json.dumps([state, sums], sort_keys=True).encode()
    sums["state.json"] = hashlib.sha256(rest).hexdigest()
    (checkpoint / "state.json").write_text(json.dumps({**state, "sha256": sums}))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one tiny trained run, which is the `latest`."""
    folder = tmp_path_factory.mktemp("a folder with spaces")
    output = succeed("train", *TINY, cwd=folder)
    (folder / "output.txt").write_text(output)
    return folder


@pytest.fixture(scope="session")
def tiny_run(tiny: Path) -> Path:
    """The directory of the run in `tiny`."""
    (run,) = (tiny / "runs").iterdir()
    return run


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy of it, in the folder of the test."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run", symlinks=True))


@pytest.fixture
def here(tiny: Path, run: Path, tmp_path: Path) -> Path:
    """The folder of that copy, with one of the cache."""
    shutil.copytree(tiny / ".cache", tmp_path / ".cache")
    return tmp_path


def configure(run: Path, change: Callable[[dict], object]) -> None:
    file = run / "config.yaml"
    settings = yaml.safe_load(file.read_text())
    change(settings)
    file.write_text(yaml.safe_dump(settings))


def rewrite(
    run: Path, change: Callable[[dict[str, torch.Tensor]], object], name: str = MODEL
) -> None:
    """Change the tensors in a file of every checkpoint of a run, and the checksums with them."""
    for folder in (run / "checkpoints").glob("step-*"):
        tensors = safetensors.torch.load_file(folder / name)
        change(tensors)
        safetensors.torch.save_file(tensors, folder / name)
        seal(folder)


SETTINGS = (
    *TINY,
    "trainer.max_steps=12",
    "trainer.batch_size=8",
    "trainer.grad_accumulation=2",
    "trainer.eval_every=6",
    "trainer.checkpoint_every=4",
    "trainer.log_every=1",
    "observe.attention.every=6",
)
TRAIN = ROOT / "train.py"


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> bool:
    """Wait until `condition` is true; return False if the process ends first."""
    while process.poll() is None:
        if condition():
            return True
        time.sleep(0.0005)
    return False
