"""A run is a directory; this file knows what lies where in it.

    config.yaml      the run's own resolved settings, written once
    resumed.yaml     those that the newest resume trains with, if any differ
    .hydra/          what Hydra composed, for its users' tools
    train.log        what happened, in plain lines
    metrics.jsonl    one line a measurement
    summary.json     the result
    data.json        a checksum of the tokens, so that a text that has changed is noticed
    tokenizer/       the tokenizer, whole: opening a run needs no network
    checkpoints/     see training/checkpoint.py
    events.*         TensorBoard
    plugins/         TensorBoard's projector: token embeddings
    profile/         traces of recorded steps, if asked for
    lock             held by the process that trains

A folder with a config.yaml is a run: that file is written last. It knows nothing of what the
settings mean.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import filelock
import yaml

from data.cache import fsync
from errors import UserError
from training.checkpoint import Checkpoints
from training.observer import Summary

RUNS = Path("runs")
CONTENTS = (
    "config.yaml",
    "resumed.yaml",
    ".hydra",
    "train.log",
    "metrics.jsonl",
    "summary.json",
    "data.json",
    "tokenizer",
    "checkpoints",
    "profile",
)


class Run:
    """Paths into one run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"
        self.resumed_file = path / "resumed.yaml"
        self.log_file = path / "train.log"
        self.metrics_file = path / "metrics.jsonl"
        self.summary_file = path / "summary.json"
        self.data_file = path / "data.json"
        self._lock = filelock.FileLock(path / "lock")
        self.tokenizer_folder = path / "tokenizer"
        self.checkpoints = Checkpoints(path / "checkpoints")

    @classmethod
    def create(
        cls,
        path: str | None,
        config: str,
        hydra: Mapping[str, str],
        tokens_sha256: str,
        save_tokenizer: Callable[[Path], None],
    ) -> Run:
        """A new directory at `path`, or by default one named after the time, under `runs/`.

        `config` is the text of config.yaml; `hydra` maps names of files in .hydra/ to their texts;
        `tokens_sha256` is what `check_tokens` compares with; `save_tokenizer(folder)` fills a
        folder. The new run is locked.
        """
        run = cls(_make_directory(path))
        run.lock("run_dir")
        if run.config_file.exists():  # another process has come and gone since the checks
            raise UserError(f"run_dir: {run.path} has just become a run; choose another folder")
        for left in (run.path / ".hydra", run.tokenizer_folder):
            shutil.rmtree(left, ignore_errors=True)
        run.data_file.write_text(json.dumps({"tokens_sha256": tokens_sha256}) + "\n")
        (run.path / ".hydra").mkdir()
        for name, text in hydra.items():
            (run.path / ".hydra" / name).write_text(text)
        run.tokenizer_folder.mkdir()
        save_tokenizer(run.tokenizer_folder)
        for each in run.path.rglob("*"):
            fsync(each)
        replace_text(run.config_file, config)
        return run

    @classmethod
    def open(cls, path: str, setting: str) -> Run:
        """The run at `path`. Raises UserError, naming `setting`, if it is no run."""
        config_file = Path(path) / "config.yaml"
        # runs/latest holds links: this leads from there to the run itself.
        folder = config_file.resolve().parent
        here = Path.cwd()
        run = cls(folder.relative_to(here) if folder.is_relative_to(here) else folder)
        if not config_file.is_file():
            raise UserError(
                f"{setting}: {path} is no run (it has no config.yaml); "
                f"give the folder of a run, such as {RUNS}/latest"
            )
        return run

    def lock(self, setting: str) -> None:
        """Keep all other processes from training this run, for as long as this one lives.

        Raises UserError, naming `setting`, if another does.
        """
        try:
            self._lock.acquire(blocking=False)
        except filelock.Timeout:
            raise UserError(
                f"{setting}: another process trains {self.path}; wait for it, or give another run"
            ) from None

    def check_tokens(self, tokens_sha256: str, setting: str) -> None:
        """Raises UserError, naming `setting`, unless the run was trained on these tokens."""
        try:
            trained_on = json.loads(self.data_file.read_text())["tokens_sha256"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self.data_file}: cannot be read; choose another run") from error
        if trained_on != tokens_sha256:
            raise UserError(
                f"{setting}: the text that {self.path} was trained on has changed since; "
                "bring it back, or give the text in data=... data.path=... of a new run"
            )

    def point_latest(self) -> None:
        """Make `runs/latest` a folder of links to what is here.

        All but the TensorBoard events: a single link to the folder would show every run twice in
        `tensorboard --logdir runs`.
        """
        latest = RUNS / "latest"
        latest.mkdir(parents=True, exist_ok=True)
        for name in CONTENTS:
            link = latest / f".{name}.{os.getpid()}"
            link.unlink(missing_ok=True)
            link.symlink_to(os.path.relpath(self.path.resolve() / name, latest.resolve()))
            link.replace(latest / name)

    def start_log(self) -> None:
        """Send log records of the `training` logger to train.log, after what is there."""
        handler = _LogFile(self.log_file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger = logging.getLogger("training")
        for old in logger.handlers[:]:
            logger.removeHandler(old)
            old.close()
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def store_settings(self, config: str) -> None:
        """Keep what a resume changes, so that the next one starts from there."""
        current = self.resumed_file if self.resumed_file.exists() else self.config_file
        before = current.read_text()
        if yaml.safe_load(config) != yaml.safe_load(before):
            replace_text(self.resumed_file, config)
            known = before.splitlines()
            changed = [line.strip() for line in config.splitlines() if line not in known]
            log = logging.getLogger("training")
            log.info("changed from here on: %s", ", ".join(changed))

    def is_summed_up(self, steps: int) -> bool:
        """Whether summary.json is that of a run of so many steps: a kill may come before it."""
        try:
            return json.loads(self.summary_file.read_text())["steps"] == steps
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def write_summary(self, summary: Summary) -> None:
        """Replace summary.json."""
        replace_text(self.summary_file, json.dumps(asdict(summary), indent=2) + "\n")


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        raise  # a full disk is told once, like any other error, not with a traceback for each line


def replace_text(path: Path, text: str) -> None:
    """Write a file that is there whole or as it was, even after a loss of power."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    fsync(temporary)
    temporary.replace(path)
    fsync(path.parent)


def check_runs() -> None:
    """Raise UserError if `runs/latest` cannot be pointed to a run."""
    for folder in (RUNS, RUNS / "latest"):
        if os.path.lexists(folder) and not folder.is_dir():
            raise UserError(f"{folder}: is no folder; move it away, or work in another folder")


def check_new(path: str | None) -> None:
    """Raise UserError if a run cannot be made at `path`, without touching the disk."""
    if path is None:
        return
    target = Path(path)
    if _is_half_made(target):
        return
    if not path or target.resolve() in (RUNS.resolve(), (RUNS / "latest").resolve()):
        raise UserError(f"run_dir: {path!r} cannot be a run; choose another folder")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(
            f"run_dir: {path} exists; choose another folder, or go on with resume={path}"
        )
    parent = next(each for each in target.absolute().parents if each.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise UserError(f"run_dir: {parent} is no folder that can be written to; choose another")


def _is_half_made(path: Path) -> bool:
    """Whether `create` was killed here before there was a run."""
    if not path.is_dir():
        return False
    names = {each.name for each in path.iterdir() if not each.name.startswith(".config.yaml.")}
    return "lock" in names and names <= {"lock", "data.json", ".hydra", "tokenizer"}


def _make_directory(path: str | None) -> Path:
    if path is not None:
        check_new(path)
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run_dir: {path} cannot be made ({error.strerror})") from error
        return Path(path)
    name = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    attempt = 1
    while True:
        target = RUNS / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            target.mkdir(parents=True)
            return target
        except FileExistsError:
            attempt += 1
