"""The directory of a run and the files in it.

    config.yaml      the run's own resolved settings, written once
    resumed.yaml     the settings of the newest resume, if they differ
    .hydra/          what Hydra composed, for tools that read it
    train.log        events of the run, as plain lines
    metrics.jsonl    one line per measurement
    losses.json      losses of tokens, for TensorBoard's Attention tab
    live/            weights at logged steps, for its live page
    summary.json     the result
    data.json        a checksum of the tokens, to detect a changed text
    code.json        the commit of the clone that trained it, if that was a clone
    tokenizer/       the complete tokenizer: opening a run needs no network
    checkpoints/     see training/checkpoint.py
    events.*         TensorBoard
    plugins/         TensorBoard's projector: token embeddings
    profile/         traces of recorded steps, if requested
    wandb/           files of Weights & Biases, if requested, and in wandb_id the name of its run
    lock             held by the process that trains

A folder with a config.yaml is a run: that file is written last. Knows nothing of what the settings
mean.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from itertools import count
from pathlib import Path

import filelock
import yaml

from common.errors import UserError, check_path, print
from common.files import (
    fsync,
    is_temporary,
    naming,
    read_json,
    read_text,
    real_path,
    replace_link,
    replace_text,
)
from training.callback import Summary
from training.checkpoint import Checkpoints
from training.stored import flat

RUNS = Path("runs")
FROM_HUB = "python convert.py source=openai-community/gpt2 to=runs/gpt2"
FILES = (
    "config.yaml",
    "resumed.yaml",
    "data.json",
    "code.json",
    "train.log",
    "metrics.jsonl",
    "losses.json",
    "summary.json",
)
FOLDERS = (".hydra", "tokenizer", "checkpoints", "profile")
RARE = ("resumed.yaml", "code.json", "profile")  # which some runs never have
# What else is written, by observers too: patterns of files, and folders.
MORE_FILES = (
    *("lock", "wandb_id", "events.out.tfevents.*", "checkpoints/written.json", "tokenizer/*"),
    *("live/model.json", "live/[0-9]*.bin", "plugins/*_projector/*"),
)
MORE_FOLDERS = ("live", "plugins", "plugins/*_projector", "wandb")


class Run:
    """Paths into one run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"
        self.resumed_file = path / "resumed.yaml"
        self.log_file = path / "train.log"
        self.summary_file = path / "summary.json"
        self.data_file = path / "data.json"
        self.code_file = path / "code.json"
        self._lock = filelock.FileLock(path / "lock")
        self._locked_folder = _LockedFolder(path)
        self.check_in_place = self._locked_folder.check
        self.tokenizer_folder = path / "tokenizer"
        # Not a method of this object: a cycle of references would keep the lock.
        self.checkpoints = Checkpoints(path / "checkpoints", self._locked_folder.check)

    @classmethod
    def create(
        cls,
        path: str | None,
        config: str,
        hydra: Mapping[str, str],
        tokens_sha256: str,
        save_tokenizer: Callable[[Path], None],
        code: str | None = None,
    ) -> Run:
        """A new run at `path`, by default in a folder under `runs/` named after the time.

        `config` is the text of config.yaml; `hydra` maps names of files in .hydra/ to their texts;
        `tokens_sha256` is what `check_tokens` compares with; `save_tokenizer(folder)` writes into a
        folder; `code` is the text of code.json. The new run is locked.
        """
        run = cls(_make_directory(path))
        run.lock("run_dir")
        if run.config_file.exists():  # made by another process since the checks
            raise UserError(
                f"run_dir: another process has just created {run.path}; choose another folder"
            )
        for left in (run.path / ".hydra", run.tokenizer_folder):
            shutil.rmtree(left, ignore_errors=True)
        checksum = json.dumps({"tokens_sha256": tokens_sha256}) + "\n"
        run.data_file.write_text(checksum, encoding="utf-8")
        if code is not None:
            run.code_file.write_text(code, encoding="utf-8")
        (run.path / ".hydra").mkdir()
        for name, text in hydra.items():
            (run.path / ".hydra" / name).write_text(text, encoding="utf-8")
        run.tokenizer_folder.mkdir()
        save_tokenizer(run.tokenizer_folder)
        for entry in run.path.rglob("*"):
            fsync(entry)
        replace_text(run.config_file, config)
        return run

    @classmethod
    def open(cls, path: str, setting: str) -> Run:
        """The run at `path`. Raises UserError, naming `setting`, if there is none, or if it has
        links that a run does not have."""
        check_path(setting, path)
        config_file = Path(path) / "config.yaml"
        folder, linked = real_path(Path(path)), real_path(config_file).parent
        # runs/latest is a folder of links: find the run itself. In a folder of somebody else, links
        # to other runs are not followed.
        is_own = folder == real_path(RUNS / "latest")
        if folder.name == "latest" and (is_own or linked.is_relative_to(folder.parent)):
            folder = linked
        here = Path.cwd()
        run = cls(folder.relative_to(here) if folder.is_relative_to(here) else folder)
        if not config_file.is_file():
            advice = "give the folder of a run, or make one with python train.py"
            if (Path(path) / "config.json").is_file():
                source = shlex.quote(str(path))
                advice = f"convert it first: python convert.py source={source} to=runs/NAME"
            elif is_on_hub(path):
                advice = f"convert a model of the Hugging Face hub first, such as with {FROM_HUB}"
            raise UserError(f"{setting}: {path} is not a run (it has no config.yaml); {advice}")
        run._check_contents(setting)
        return run

    def _check_contents(self, setting: str) -> None:
        """Raises UserError, naming `setting`, for a link other than `last` and `best` to the run's
        own checkpoints, and for what is neither a file nor a folder: so nothing outside of the
        folder is read or written, and nothing is waited for."""
        checkpoints = self.checkpoints.folder
        for folder, folders, files in os.walk(self.path):
            for path in (Path(folder, name) for name in (*folders, *files)):
                with suppress(FileNotFoundError):  # it was deleted meanwhile
                    mode = path.lstat().st_mode
                    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                        continue
                    is_link = stat.S_ISLNK(mode)
                    # Also while one of them is replaced, under its temporary name.
                    if is_link and path.parent == checkpoints and _is_name(path.readlink()):
                        continue
                    what = f"a link to {path.readlink()}" if is_link else "no file or folder"
                    raise UserError(
                        f"{setting}: {path} is {what}, which a run does not have; move it, or "
                        "give another run"
                    )

    def check_places(self) -> None:
        """Raise UserError if a folder is where training writes a file, or the reverse, and OSError
        for a folder that may not be read, which would seem empty."""
        for patterns, is_wrong, found, wanted in (
            ((*FILES, *MORE_FILES), Path.is_dir, "a folder", "a file"),
            ((*FOLDERS, *MORE_FOLDERS), Path.is_file, "a file", "a folder"),
        ):
            for path in (path for pattern in patterns for path in self.path.glob(pattern)):
                if is_wrong(path):
                    raise UserError(f"{path}: is {found}, where a run has {wanted}; move it")
                if path.is_dir():
                    os.scandir(path).close()

    @property
    def newest_settings_file(self) -> Path:
        """Of the last resume that changed any, or of the start."""
        return self.resumed_file if self.resumed_file.exists() else self.config_file

    @property
    def made_by(self) -> str:
        """Which code made the run, to be put behind an error; empty if it is not known."""
        try:
            code = read_json(self.code_file)
            changes = "" if code["clean"] else ", with changes"
            return f" (the run was made by commit {code['commit'][:12]}{changes})"
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def was_given(self, arguments: str) -> bool:
        """Whether some arguments, as YAML, were among those of the command that created the run."""
        try:
            return arguments in read_text(self.path / ".hydra" / "overrides.yaml")
        except (OSError, ValueError):
            return False

    def lock(self, setting: str, seconds: float = 0) -> None:
        """Prevent other processes from training this run, until this process ends.

        Raises UserError, naming `setting`, if another process is still training it after `seconds`.
        """
        try:
            self._lock.acquire(timeout=seconds)
        except filelock.Timeout:
            raise UserError(
                f"{setting}: another process is training {self.path}; wait, or give another run"
            ) from None
        self._locked_folder.remember()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """If the block raises because the run is no longer in its place, raise what
        `check_in_place` does. An OSError that names no file names the run."""
        try:
            with naming(self.path):
                yield
        except (UserError, OSError):
            self.check_in_place()
            raise

    def check_tokens(self, tokens_sha256: str, setting: str) -> None:
        """Raises UserError, naming `setting`, unless the run was trained on these tokens."""
        try:
            trained_on = read_json(self.data_file)["tokens_sha256"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self.data_file}: cannot be read; choose another run") from error
        if trained_on != tokens_sha256:
            raise UserError(
                f"{setting}: the text that {self.path} was trained on has changed; "
                "restore it, or start a new run with the new text"
            )

    def point_latest(self) -> None:
        """Make `runs/latest` a folder of links to the files of this run, or say why it is not.

        All but the TensorBoard events: with a link to the whole folder, `tensorboard --logdir runs`
        would show the run twice. Only links are replaced: a copy of a run, or a link to one, is
        the user's.
        """
        latest = RUNS / "latest"
        if real_path(latest) == real_path(self.path):
            return
        entries = [latest / name for name in (*FILES, *FOLDERS)]
        is_taken = latest.is_symlink() or (os.path.lexists(latest) and not latest.is_dir())
        if is_taken or any(os.path.lexists(entry) and not entry.is_symlink() for entry in entries):
            print(
                f"note: {latest} stays as it is, since this program did not make it, and does not "
                f"lead to {self.path}; move it, and the next run is the latest again",
                file=sys.stderr,
            )
            return
        try:
            latest.mkdir(parents=True, exist_ok=True)
            for entry in entries:
                target = real_path(self.path) / entry.name
                if entry.name in RARE and not target.exists():
                    entry.unlink(missing_ok=True)
                else:
                    replace_link(entry, os.path.relpath(target, real_path(latest)))
        except OSError as error:
            print(
                f"warning: {latest}: cannot be pointed to {self.path} ({error.strerror}); "
                "use the folder itself",
                file=sys.stderr,
            )

    def start_log(self) -> None:
        """Append log records of the `training` logger to train.log."""
        handler = _LogFile(self.log_file, encoding="utf-8", errors="backslashreplace")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger = logging.getLogger("training")
        for old in logger.handlers[:]:
            logger.removeHandler(old)
            old.close()
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def store_settings(self, config: str) -> None:
        """Keep the settings that a resume changes; the next resume starts from them."""
        before = self.newest_settings_file.read_text(encoding="utf-8")
        was, now = (flat(yaml.safe_load(text)) for text in (before, config))
        if was != now:
            replace_text(self.resumed_file, config)
            changed = [f"{name}={value}" for name, value in now.items() if was.get(name) != value]
            log = logging.getLogger("training")
            log.info("changed from now on: %s", ", ".join(changed))

    def has_summary(self, steps: int) -> bool:
        """Whether summary.json is that of a run of `steps` steps: a kill can prevent it."""
        try:
            return read_json(self.summary_file)["steps"] == steps
        except (OSError, ValueError, KeyError, TypeError):
            return False

    @property
    def val_bpb(self) -> float:
        """The result in summary.json. Raises UserError if there is none."""
        try:
            return float(read_json(self.summary_file)["val_bpb"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self.summary_file}: cannot be read; choose another run") from error

    def write_summary(self, summary: Summary) -> None:
        """Replace summary.json. Raises UserError if another folder has taken the run's place."""
        self.check_in_place()
        replace_text(self.summary_file, json.dumps(asdict(summary), indent=2) + "\n")


class _LockedFolder:
    """The folder of a run at its path, as this process has locked it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locked: os.stat_result | None = None

    def remember(self) -> None:
        self._locked = (self.path / "lock").stat()

    def check(self) -> None:
        """Raise UserError if the folder that this process locked is no longer at its path: it was
        deleted or moved, or another one, which nobody locked, has taken its place."""
        if self._locked is None:
            return
        try:
            is_in_place = os.path.samestat(self._locked, (self.path / "lock").stat())
        except OSError:
            is_in_place = False
        if not (is_in_place and (self.path / "config.yaml").exists()):
            raise UserError(
                f"{self.path}: was deleted, moved, renamed or replaced while it was trained, which "
                "ends here; if it was moved, continue from its last checkpoint with resume=NEW"
            )


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        raise  # a full disk is reported once, not with a traceback for each line


def is_on_hub(path: str) -> bool:
    """Whether a path that does not exist can be meant as a name on the Hugging Face hub."""
    owner = path.partition("/")[0]
    is_name = re.fullmatch(r"(distil)?gpt2(-\w+)?|[\w.-]+/[\w.-]+", path, re.ASCII) is not None
    return is_name and owner != RUNS.name and not os.path.lexists(owner)


def check_new(path: str | None) -> None:
    """Raise UserError if a run cannot be created at `path`, by default in a folder under `runs/`,
    without touching the disk."""
    if path is None:
        if os.path.lexists(RUNS) and not RUNS.is_dir():
            raise UserError(f"{RUNS}: is not a folder; move it, or give another one as run_dir")
        return
    check_path("run_dir", path)
    target = Path(path)
    if _is_half_made(target):
        Run(target).check_places()
        return
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UserError(f"run_dir: {path} is not UTF-8; choose another folder") from None
    if not path or real_path(target) in (real_path(RUNS), real_path(RUNS / "latest")):
        raise UserError(f"run_dir: {path!r} is reserved; choose another folder")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        is_run = (target / "config.yaml").is_file()
        advice = f", or continue it with resume={shlex.quote(str(path))}" if is_run else ""
        raise UserError(f"run_dir: {path} exists; choose another folder{advice}")
    parent = next(folder for folder in target.absolute().parents if folder.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise UserError(f"run_dir: {parent} is not a writable folder; choose another")


def _is_name(path: Path) -> bool:
    """Whether this is the name of something in the same folder."""
    return len(path.parts) == 1 and path.name not in ("", "..")


def _is_half_made(path: Path) -> bool:
    """Whether `create` was killed here before it finished."""
    if not path.is_dir():
        return False
    names = {entry.name for entry in path.iterdir() if not is_temporary(entry)}
    return "lock" in names and names <= {"lock", "data.json", "code.json", ".hydra", "tokenizer"}


def _make_directory(path: str | None) -> Path:
    if path is not None:
        check_new(path)
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"run_dir: {path} cannot be created ({error.strerror}); choose another"
            ) from error
        return Path(path)
    name = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for attempt in count(1):
        target = RUNS / (name if attempt == 1 else f"{name}-{attempt}")
        with suppress(FileExistsError):
            target.mkdir(parents=True)
            break
    return target
