"""The directory of a run and the files in it.

    config.yaml      the run's own resolved settings, written once
    resumed.yaml     the settings of the newest resume, if they differ
    .hydra/          what Hydra composed, for tools that read it
    train.log        events of the run, as plain lines
    metrics.jsonl    one line per measurement
    losses.jsonl     losses of tokens, for TensorBoard's Attention tab
    evidence.json    what every head and neuron does over a part of the validation split, from the
                     end
    live/            weights at logged steps, for its live page
    summary.json     the result
    data.json        when the run was started; a checksum of the tokens, to detect a changed text;
                     the fingerprint of the corpus
    diverged.json    at which step it diverged, until a resume gets beyond
    code.json        a checksum of the code that trained it, and the commit, if that was a clone
    tokenizer/       the complete tokenizer: opening a run needs no network
    checkpoints/     see store/checkpoint.py
    events.*         TensorBoard
    projector_config.pbtxt, STEP/token_embedding/    token embeddings for TensorBoard's projector
    wandb_id         the name of the run at Weights & Biases, if requested
    lock             held by the process that trains

A folder with a config.yaml is a run. It is made under another name and renamed when it is whole,
and it holds no links.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import filelock

from common.errors import UserError, as_argument, check_path, print_note
from common.files import (
    check_creatable,
    clean,
    fsync,
    naming,
    new_folder,
    read_value,
    real_path,
    replace_text,
)
from common.settings import Values, build, flat
from data.files import is_run
from store.checkpoint import Checkpoints
from store.settings import read_settings, settings_yaml

Config = TypeVar("Config")

RUNS, LATEST = Path("runs"), "latest"
MAX_STARTED = 1e12  # a larger number is no time, and comes with a run of somebody else
VERDICT = RUNS / "verdict"
# Of runs, of those of sweeps, and of those of verdicts.
PATTERNS = (
    "[!.]*/config.yaml",
    "[!.]*/[!.]*/config.yaml",
    f"{VERDICT.name}/[!.]*/[!.]*/config.yaml",
)


@dataclass(frozen=True)
class Summary:
    """The result of a run.

    `val_loss`, `val_bpb` and `floor_bpb` are those of the last evaluation, which scored
    `val_tokens` tokens (see `EvalMetrics`); the best values are the lowest of the evaluations
    during training, over `best_val_tokens` tokens. `seconds` is wall-clock time in the training
    loop without evaluations; `bad_steps` were skipped because their loss or gradient was not
    finite.
    """

    val_loss: float
    val_bpb: float
    val_tokens: int
    best_val_loss: float
    best_val_bpb: float
    best_val_tokens: int
    steps: int
    tokens: int
    seconds: float
    tokens_per_second: float
    parameters: int
    bad_steps: int
    floor_bpb: float | None = None


class Run:
    """Paths into one run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.yaml"
        self.resumed_file = path / "resumed.yaml"
        self.log_file = path / "train.log"
        self.summary_file = path / "summary.json"
        self.data_file = path / "data.json"
        self.diverged_file = path / "diverged.json"
        self.code_file = path / "code.json"
        self.tokenizer_folder = path / "tokenizer"
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.lock_file = path / "lock"
        self._lock = filelock.FileLock(self.lock_file)
        self._held: os.stat_result | None = None

    def __reduce__(self) -> tuple[type[Run], tuple[Path]]:
        """A copy, also one in another process, holds no lock."""
        return Run, (self.path,)

    @classmethod
    def create(
        cls,
        path: str | None,
        files: Mapping[str, str],
        data: Mapping[str, str],
        save_tokenizer: Callable[[Path], None],
    ) -> Run:
        """A new run at `path`, by default in a folder under `runs/` named after the time.

        `files` maps names, with config.yaml among them, to texts; `data` is what data.json has
        beside the time, of which `check_tokens` compares "tokens_sha256"; `save_tokenizer(folder)`
        writes into a folder. The new run is locked.

        Raises UserError if another process has just created a run there, OSError if the disk
        refuses.
        """
        for target in _new_folders() if path is None else [Path(path)]:
            try:
                started = json.dumps({"started": _now(target), **data}) + "\n"
                # Through a link of the user's to an empty folder.
                with new_folder(real_path(target)) as folder:
                    for name, content in {**files, "data.json": started}.items():
                        (folder / name).parent.mkdir(exist_ok=True)
                        (folder / name).write_text(content, encoding="utf-8")
                    (folder / "tokenizer").mkdir()
                    save_tokenizer(folder / "tokenizer")
                    for entry in folder.rglob("*"):
                        fsync(entry)
            except FileExistsError:
                continue
            run = cls(target)
            run.lock("run_dir")
            return run
        raise UserError(
            f"run_dir: another process has just created {path or RUNS}; choose another folder, or "
            "run the command again with resume=auto"
        )

    @classmethod
    def open(cls, path: str, setting: str) -> Run:
        """The run at `path`, which can be `latest`. Raises UserError, naming `setting`, if there is
        none, or if it has links or pipes: so nothing outside of the folder is read or written, and
        nothing is waited for."""
        check_path(setting, path)
        folder, here = real_path(find_run(path, evaluated=setting != "resume")), Path.cwd()
        run = cls(folder.relative_to(here) if folder.is_relative_to(here) else folder)
        if not run.config_file.is_file():
            near = filter(is_run, (*run.path.parents, RUNS / path))
            likely = next((f", such as {setting}={as_argument(other)}" for other in near), "")
            raise UserError(
                f"{setting}: {path} is not a run (it has no config.yaml); give the folder of a "
                f"run{likely}, make one with python train.py, or convert a model of transformers "
                "first: python convert.py source=MODEL to=runs/NAME"
            )
        for parent, folders, files in os.walk(run.path):
            for entry in (Path(parent, name) for name in (*folders, *files)):
                with suppress(FileNotFoundError):  # it was deleted meanwhile
                    mode = entry.lstat().st_mode
                    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                        raise UserError(
                            f"{setting}: {entry} is a link, pipe, socket or device; a run may only "
                            "contain files and folders; move it, or give another run"
                        )
        return run

    @property
    def started(self) -> float:
        """When the run was created, in seconds since 1970, or more: a larger number than those of
        the runs beside it that were created before. 0 for one that was converted."""
        started = read_value(self.data_file, "started")
        is_time = isinstance(started, int | float) and 0 <= started <= MAX_STARTED
        return float(started) if is_time else 0.0

    @property
    def newest_settings_file(self) -> Path:
        """Of the last resume that changed any, or of the start."""
        return self.resumed_file if self.resumed_file.exists() else self.config_file

    def config(self, kind: type[Config]) -> Config:
        """The stored settings that `kind` has; no others are read. Raises UserError if they are
        missing or damaged."""
        file = self.newest_settings_file  # a text may have been moved since the start
        stored = read_settings(file)
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        try:
            return build(kind, {name: stored[name] for name in names if name in stored})
        except UserError as error:
            raise UserError(f"{file}: {error}{self.made_by}") from error

    @property
    def made_by(self) -> str:
        """Which code made the run, to be put behind an error; empty if it is not known."""
        commit = read_value(self.code_file, "commit")
        changes = "" if read_value(self.code_file, "clean") else ", with changes"
        return f" (the run was made by commit {commit!s:.12}{changes})" if commit else ""

    def lock(self, setting: str, seconds: float = 0) -> None:
        """Prevent other processes from training this run, until this process ends, and delete what
        those that were killed left.

        Raises UserError, naming `setting`, if another process is still training it after `seconds`.
        """
        try:
            self._lock.acquire(timeout=seconds)
        except filelock.Timeout:
            raise UserError(
                f"{setting}: another process is training {self.path}; wait, or give another run"
            ) from None
        self._held = self.lock_file.stat()
        clean(self.path, "**/*", seconds=0)  # the lock says that no process is left elsewhere
        clean(self.path.parent)

    def check_in_place(self) -> None:
        """Raise UserError if the lock file at its path is not the one that this process holds: the
        run was moved or deleted, and perhaps another one has taken its place."""
        if self._held is None:
            return
        try:
            is_in_place = os.path.samestat(self._held, self.lock_file.stat())
        except OSError:
            is_in_place = False
        if not is_in_place:
            raise UserError(
                f"{self.path}: the run, or its lock file, was deleted, moved or replaced while it "
                "was trained, which ends here; continue from its last checkpoint with resume=FOLDER"
            )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """`check_in_place` before the block, and where the disk refuses something in it. An OSError
        that names no file names the run."""
        self.check_in_place()
        try:
            with naming(self.path):
                yield
        except OSError:
            self.check_in_place()
            raise

    def check_tokens(self, tokens_sha256: str, setting: str) -> None:
        """Raises UserError, naming `setting`, unless the run was trained on these tokens."""
        trained_on = read_value(self.data_file, "tokens_sha256")
        if trained_on is None:
            raise UserError(f"{self.data_file}: cannot be read; choose another run")
        if trained_on != tokens_sha256:
            raise UserError(
                f"{setting}: the text that {self.path} was trained on has changed; "
                "restore it, or start a new run with the new text"
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

    def store_settings(self, settings: Values) -> None:
        """Keep the settings that a resume changes in resumed.yaml; the next resume starts from
        them."""
        was, now = flat(read_settings(self.newest_settings_file)), flat(settings)
        if was != now:
            replace_text(self.resumed_file, settings_yaml(settings))
            changed = [f"{name}={value}" for name, value in now.items() if was.get(name) != value]
            log = logging.getLogger("training")
            log.info("changed from now on: %s", ", ".join(changed))

    def store_code(self, code: str) -> None:
        """Keep the code that continues the run in code.json, without a checksum if it is not the
        one that has trained it so far: the run is then one of neither."""
        now = json.loads(code)
        with suppress(OSError):
            if self.code_file.is_file() and self.code != now["sha256"]:
                replace_text(self.code_file, json.dumps({**now, "sha256": None}) + "\n")

    @property
    def code(self) -> str | None:
        """The checksum of the code that has trained the run; None if it is not known."""
        return read_value(self.code_file, "sha256")

    def result(self, steps: int) -> float | None:
        """The validation bits per byte in summary.json; None if that is not of a run of `steps`
        steps: a kill can prevent it."""
        if read_value(self.summary_file, "steps") == steps:
            with suppress(TypeError, ValueError):
                return float(read_value(self.summary_file, "val_bpb"))
        return None

    def write_summary(self, summary: Summary) -> None:
        """Replace summary.json. Raises UserError if another folder has taken the run's place."""
        self.check_in_place()
        replace_text(self.summary_file, json.dumps(asdict(summary), indent=2) + "\n")

    def mark_diverged(self, step: int) -> None:
        """Write diverged.json, if the disk allows it."""
        with suppress(OSError):
            replace_text(self.diverged_file, json.dumps({"step": step}) + "\n")


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        raise  # a full disk is reported once, not with a traceback for each line


def is_latest(path: str | Path) -> bool:
    """Whether a path is a word for the newest run, `latest` or `runs/latest`. If something on disk
    has this name, it is meant instead."""
    path = Path(path)
    is_word = path == Path(LATEST) or (path.name == LATEST and path.parent.name == RUNS.name)
    return is_word and not os.path.lexists(path)


def find_run(path: str | Path, evaluated: bool = True) -> Path:
    """The folder of a run: `path` itself, unless it is `latest`. That is the run directly under
    `runs/` that was started last and has been evaluated, or else has a checkpoint. A run in a
    folder of runs there, as those of sweeps and verdicts are, is chosen only if there is no other.
    Prints a note if a newer run was passed over. Returns `path` if `runs/` has no run.

    evaluated: False for a run to resume, which may have been stopped before its evaluation."""
    path = Path(path)
    if not is_latest(path):
        return path
    folder = RUNS if path == Path(LATEST) else path.parent
    runs = _runs_in(folder)
    if not runs:
        return path

    def rank(run: Run) -> tuple[bool, bool, bool, float, Path]:
        is_saved, is_single = bool(run.checkpoints.steps), run.path.parent == folder
        has_result = evaluated and run.checkpoints.best is not None
        return is_saved, is_single, has_result, run.started, run.path

    latest = max(runs, key=rank)
    newest = max(runs, key=lambda run: (run.started, run.path))
    if latest is not newest:
        print_note(
            f"note: using {latest.path}; {newest.path} is newer, but is one of a sweep or verdict, "
            f"or has no {'evaluated ' * evaluated}checkpoint yet"
        )
    return latest.path


def _runs_in(folder: Path) -> list[Run]:
    """The runs among which `latest` is found."""
    return [Run(file.parent) for pattern in PATTERNS for file in folder.glob(pattern)]


def _now(target: Path) -> float:
    """The time at which a run is created at `target`; later than those of all runs beside it, also
    where the clock has gone back."""
    folders = [folder for folder in target.absolute().parents[:3] if folder.name == RUNS.name]
    return max([time.time(), *(run.started + 1 for each in folders for run in _runs_in(each))])


def check_new(path: str | None) -> None:
    """Raise UserError if a run cannot be created at `path`, by default in a folder under `runs/`.
    Leaves nothing."""
    if path is None:
        check_creatable("run_dir", RUNS / "run")
        return
    check_path("run_dir", path)
    target = Path(path)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UserError(f"run_dir: {path} is not UTF-8; choose another folder") from None
    if is_latest(path) or real_path(target) in (real_path(RUNS), real_path(Path())):
        raise UserError(f"run_dir: {path!r} is reserved; choose another folder")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        is_run = (target / "config.yaml").is_file()
        advice = f", or continue it with resume={as_argument(target)}" if is_run else ""
        raise UserError(f"run_dir: {path} exists; choose another folder{advice}")
    check_creatable("run_dir", real_path(target))


def _new_folders() -> Iterator[Path]:
    """Names of folders under `runs/` after the time."""
    name = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    return (RUNS / (name if i == 1 else f"{name}-{i}") for i in range(1, 1000))
