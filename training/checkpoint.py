"""Checkpoints: everything a run needs to continue, in files that execute nothing when read.

    checkpoints/step-000500/model.safetensors      weights
                            optimizer.safetensors  optimizer state
                            state.json             step, tokens, seconds, best validation loss
                            SHA256SUMS             of the other three, as `sha256sum --check` reads
                            evaluated.json         state.json after the evaluation at this step
    checkpoints/last -> step-000500                the newest
    checkpoints/best -> step-000400                the lowest validation loss
    checkpoints/written.json                       the steps of the folders that the run wrote

Where there are no symbolic links, `last` and `best` are files with the name of a folder. A folder
under its final name is complete, also while it is deleted. Only folders in written.json are ever
deleted: whatever else lies beside them is the user's. Later damage is detected by checksums
before any file is used.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from torch import Tensor

from common.errors import UserError, advice, print
from common.files import (
    find_damage,
    fsync,
    read_json,
    real_path,
    remove,
    replace_folder,
    replace_link,
    replace_text,
    write_sums,
)
from training.state import EVALUATED, STATE, TrainState, load_state
from training.weights import MODEL, OPTIMIZER, write_tensors

NAMES = ("best", "last")
FILES = (MODEL, OPTIMIZER, STATE)
STEP = re.compile(r"step-(\d{6,})")
WRITTEN = "written.json"

TensorFiles = Mapping[str, Mapping[str, Tensor]]  # tensors by their names, by their file


class Checkpoints:
    """The checkpoints of one run, in `folder`. `check` raises UserError where nothing may be
    written, and is called before."""

    def __init__(self, folder: Path, check: Callable[[], None] = lambda: None) -> None:
        self.folder, self._check = folder, check

    def save(
        self, files: TensorFiles, state: TrainState, is_best: bool, keep: int, every: int = 1
    ) -> Path:
        """Write a checkpoint, point `last` (and `best`) to it, and delete all but these and the
        newest `keep` of those whose step is a multiple of `every`; returns its folder.

        Raises UserError if the disk refuses; the earlier checkpoints are then unchanged.
        """
        self._check()
        target = self._path(state.step)
        with self._advise_on_refusal():
            if target.exists() and state.step not in self._written():  # put there by the user
                _set_aside(target)
            remove(target / EVALUATED)  # of the step before a resume from earlier
            self.folder.mkdir(exist_ok=True)  # but not the run, if it was deleted or moved
            with replace_folder(target) as temporary:
                for file, values in files.items():
                    write_tensors(temporary / file, values)
                (temporary / STATE).write_text(state.as_json(), encoding="utf-8")
                write_sums(temporary, FILES)
                self._record({*self._written(), state.step})  # before the folder has its name
            for name in NAMES if is_best else ("last",):
                self._point(name, target)
            self._prune(keep, every)
        return target

    def add_evaluation(self, state: TrainState, is_best: bool, keep: int, every: int = 1) -> None:
        """Add the state after an evaluation to the checkpoint of the same step, which becomes
        `best` if it is the best. Raises UserError if the disk refuses."""
        target = self._path(state.step)
        with self._advise_on_refusal():
            if is_best:
                self._point("best", target)
            remove(target / EVALUATED)  # it may be a folder
            replace_text(target / EVALUATED, state.as_json())
            if self._pointed("last") == state.step:
                self._prune(keep, every)

    def find(self, name: str, setting: str) -> Path:
        """The folder of the checkpoint called `name` (`best` or `last`).

        If it is damaged, warns on standard error and returns the newest intact one before it. As
        long as there is no best one, it is the last, with a note. A run in training may delete the
        folder at any time. Raises UserError, naming `setting`, if there is none.
        """
        if name not in NAMES:
            raise UserError(f"checkpoint: {name!r} is unknown; choose one of {', '.join(NAMES)}")
        run, pointed, steps = self.folder.parent, self._pointed(name), self._steps()
        if pointed is None and not steps:
            raise UserError(
                f"{setting}: {run} has no checkpoint yet; wait for its first (every "
                "trainer.checkpoint_every steps) if it is still training, or choose another run"
            )
        if pointed is None and name == "best":
            last = self.find("last", setting)
            print(f"note: {run} has no best checkpoint yet; using {last.name}", file=sys.stderr)
            return last
        damages = [f"{self.folder / name} is missing or damaged"] if pointed is None else []
        newest = steps[-1] if pointed is None else pointed
        for step in sorted({newest, *(step for step in steps if step < newest)}, reverse=True):
            path = self._path(step)
            damage = find_damage(path, FILES)
            if self._pointed(name) != pointed:  # saved meanwhile, which may have deleted this one
                return self.find(name, setting)
            if damage is None:
                if damages:
                    print(f"warning: {'; '.join(damages)}; using {path.name}", file=sys.stderr)
                return path
            damages.append(damage)
        raise UserError(
            f"{'; '.join(damages)}; no intact checkpoint is left before it; choose another one, or "
            "another run"
        )

    def intact(self) -> list[Path]:
        """The folders of the checkpoints up to the last, oldest first. Those that are damaged are
        left out, with a warning on standard error."""
        found = []
        for step in self.steps:
            path = self._path(step)
            damage = find_damage(path, FILES)
            if damage is None:
                found.append(path)
            elif path.exists():  # not deleted meanwhile
                print(f"warning: {damage}; {path.name} is left out", file=sys.stderr)
        return found

    @property
    def steps(self) -> list[int]:
        """The steps of the checkpoints up to the last, intact or not."""
        return self._steps(self._pointed("last"))

    @property
    def has_best(self) -> bool:
        """Whether the run has been evaluated."""
        return self._pointed("best") is not None

    def __bool__(self) -> bool:
        """Whether there is any checkpoint, intact or not."""
        return bool(self._steps())

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}"

    def _steps(self, last: int | None = None) -> list[int]:
        """The steps of all checkpoints up to `last`, sorted. Later ones are stale: the run was
        resumed from an earlier step."""
        names = (STEP.fullmatch(path.name) for path in self.folder.glob("step-*") if path.is_dir())
        steps = sorted(int(found[1]) for found in names if found)
        return [step for step in steps if last is None or step <= last]

    def _written(self) -> set[int]:
        """The steps of the checkpoints that the run wrote and has not deleted."""
        with suppress(OSError, ValueError, TypeError):
            return {step for step in read_json(self.folder / WRITTEN) if isinstance(step, int)}
        return set()

    def _record(self, steps: Iterable[int]) -> None:
        replace_text(self.folder / WRITTEN, json.dumps(sorted(steps)) + "\n")

    def _point(self, name: str, target: Path) -> None:
        """Make `last` or `best` a link to a checkpoint, or else a file with its name: some disks
        have no links, and on Windows they are not used."""
        link = self.folder / name
        if link.is_dir() and not link.is_symlink():
            _set_aside(link)
        try:
            replace_link(link, target.name)
        except OSError:
            replace_text(link, target.name)
        fsync(self.folder)

    def _pointed(self, name: str) -> int | None:
        """The step of the checkpoint to which `last` or `best` points, which may be missing."""
        link = self.folder / name
        is_file = link.is_file()
        target = link.read_text("utf-8", "replace") if is_file else real_path(link).name
        if found := STEP.fullmatch(target):
            return int(found[1])
        with suppress(UserError):  # a folder, if a copy followed the link
            return load_state(link).step
        return None

    def _prune(self, keep: int, every: int) -> None:
        last = self._pointed("last")
        # Others were the best for a while, or are where a session stopped.
        regular = [step for step in self._steps(last) if step % every == 0]
        kept = {self._pointed("best"), last, *regular[-keep:]}
        written = self._written()
        gone = [step for step in self._steps() if step in written and step not in kept]
        for path in map(self._path, gone):
            remove(path)
        if gone:
            self._record(written.difference(gone))

    @contextmanager
    def _advise_on_refusal(self) -> Iterator[None]:
        """Raise UserError if the disk refuses."""
        try:
            yield
        except OSError as error:
            run = shlex.quote(str(self.folder.parent))
            raise UserError(
                f"{self.folder}: the checkpoint cannot be written ({error.strerror or error}); "
                f"earlier ones are intact: {advice(error)}, then continue with resume={run}"
            ) from error


def _set_aside(folder: Path) -> None:
    """Rename a folder of the user's, and say so."""
    free = next(path for i in count(1) if not os.path.lexists(path := Path(f"{folder}-{i}")))
    folder.rename(free)
    print(f"note: {folder} was not written by this run; it is now {free.name}", file=sys.stderr)
