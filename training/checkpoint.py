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
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path

from torch import Tensor

from errors import UserError
from files import (
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
STEP = r"step-\d+"
UNFINISHED = rf"\.{STEP}\.[0-9a-f]{{16}}"  # of a process that was killed; see `files`
WRITTEN = "written.json"


class Checkpoints:
    """The checkpoints of one run, in `folder`."""

    def __init__(self, folder: Path, check: Callable[[], None] = lambda: None) -> None:
        """`check` raises UserError where nothing may be written, and is called before."""
        self.folder, self._check = folder, check

    def save(
        self,
        tensors: Mapping[str, Mapping[str, Tensor]],
        state: TrainState,
        is_best: bool,
        keep: int,
    ) -> Path:
        """Write a checkpoint of `tensors` (MODEL and OPTIMIZER, by their names), point `last` (and
        `best`) to it, and delete all but the newest `keep` and the best; returns its folder.

        Raises UserError if the disk refuses; the earlier checkpoints are then unchanged.
        """
        self._check()
        target = self.folder / f"step-{state.step:06d}"
        try:
            if target.exists() and state.step not in self._written():  # put there by the user
                _set_aside(target)
            remove(target / EVALUATED)  # of the step before a resume from earlier
            self.folder.mkdir(exist_ok=True)  # but not the run, if it was deleted or moved
            with replace_folder(target) as temporary:
                for part, values in tensors.items():
                    write_tensors(temporary / part, values)
                (temporary / STATE).write_text(state.as_json(), encoding="utf-8")
                write_sums(temporary, FILES)
                self._record({*self._written(), state.step})  # before the folder has its name
            for name in NAMES if is_best else ("last",):
                self._point(name, target)
            fsync(self.folder)
            self._prune(keep)
        except OSError as error:
            raise self._refused(error) from error
        return target

    def _refused(self, error: Exception) -> UserError:
        reason = getattr(error, "strerror", None) or error
        run = shlex.quote(str(self.folder.parent))
        return UserError(
            f"{self.folder}: the checkpoint cannot be written ({reason}); earlier ones are intact: "
            f"free some space, then continue with resume={run}"
        )

    def add_evaluation(self, state: TrainState, is_best: bool, keep: int) -> None:
        """Add the state after an evaluation to the checkpoint of the same step, which becomes
        `best` if it is the best. Raises UserError if the disk refuses."""
        target = self.folder / f"step-{state.step:06d}"
        try:
            if is_best:
                self._point("best", target)
                fsync(self.folder)
            remove(target / EVALUATED)  # it may be a folder
            replace_text(target / EVALUATED, state.as_json())
        except OSError as error:
            raise self._refused(error) from error
        if self._target("last") == real_path(target):
            self._prune(keep)

    def find(self, name: str, setting: str) -> Path:
        """The folder of the checkpoint called `name` (`best` or `last`).

        If it is damaged, warns on standard error and returns the newest intact one before it. A run
        without an evaluation has no best one yet: then it is the last, with a note. A run in
        training may delete the returned folder at any time. Raises UserError, naming `setting`,
        if there is none.
        """
        if name not in NAMES:
            raise UserError(f"checkpoint: {name!r} is unknown; choose one of {', '.join(NAMES)}")
        target = self._target(name)
        found = self._steps()
        if self._target(name) != target:  # replaced meanwhile
            return self.find(name, setting)
        wanted = _step(target)
        if name == "best" and not os.path.lexists(self.folder / name) and self._is_unmeasured():
            last = self.find("last", setting)
            print(
                f"note: {self.folder.parent} has no evaluation yet; using its last checkpoint, "
                f"{last.name}",
                file=sys.stderr,
            )
            return last
        if not found:
            raise UserError(
                f"{setting}: {self.folder.parent} has no checkpoint yet; wait for its first (every "
                "trainer.checkpoint_every steps) if it is still training, or choose another run"
            )
        candidates = [path for path in found if _step(path) <= wanted]
        exists = wanted in map(_step, found)
        damages = [] if exists else [f"{self.folder / name} is missing or damaged"]
        for path in reversed(candidates or found):
            damage = find_damage(path, FILES)
            if not path.exists():  # deleted meanwhile
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
        last = _step(self._target("last"))
        found = []
        for path in self._steps():
            if _step(path) > last:  # stale: the run was resumed from an earlier step
                continue
            damage = find_damage(path, FILES)
            if damage is None:
                found.append(path)
            elif path.exists():  # not deleted meanwhile
                print(f"warning: {damage}; {path.name} is left out", file=sys.stderr)
        return found

    def __bool__(self) -> bool:
        """Whether there is any checkpoint, intact or not."""
        return bool(self._steps())

    def _is_unmeasured(self) -> bool:
        try:
            return load_state(self._target("last")).best_val_loss is None
        except UserError:  # there is none, or it is damaged
            return False

    def _steps(self) -> list[Path]:
        """All checkpoint folders, oldest first."""
        folders = (path for path in self.folder.glob("step-*") if re.fullmatch(STEP, path.name))
        return sorted((path for path in folders if path.is_dir()), key=_step)

    def _written(self) -> set[int]:
        """The steps of the checkpoints that the run wrote and has not deleted."""
        try:
            return {step for step in read_json(self.folder / WRITTEN) if isinstance(step, int)}
        except (OSError, ValueError, TypeError):
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

    def _target(self, name: str) -> Path:
        """What `last` or `best` points to."""
        link = self.folder / name
        if link.is_file():
            return real_path(self.folder) / link.read_text(encoding="utf-8", errors="replace")
        if not link.is_symlink() and (copied := self.folder / f"step-{_step(link):06d}").is_dir():
            return real_path(copied)
        return real_path(link)

    def _prune(self, keep: int) -> None:
        last = self._target("last")
        # Checkpoints after `last` are stale: the run was resumed from an earlier step.
        steps = [path for path in self._steps() if _step(path) <= _step(last)]
        kept = {self._target("best"), *(real_path(path) for path in steps[-keep:])}
        written = self._written()
        gone = [
            path for path in self._steps() if _step(path) in written and real_path(path) not in kept
        ]
        hidden = self.folder.glob(".step-*")
        for path in [*gone, *(each for each in hidden if re.fullmatch(UNFINISHED, each.name))]:
            remove(path)
        if gone:
            self._record(written - {_step(path) for path in gone})


def _set_aside(folder: Path) -> None:
    """Rename a folder of the user's, and say so."""
    free = next(path for i in count(1) if not os.path.lexists(path := Path(f"{folder}-{i}")))
    folder.rename(free)
    print(f"note: {folder} was not written by this run; it is now {free.name}", file=sys.stderr)


def _step(path: Path) -> int:
    """The step of a checkpoint folder: from its name, or from state.json if a link was copied."""
    digits = path.name.removeprefix("step-")
    if digits.isdecimal():
        return int(digits)
    try:
        return load_state(path).step
    except UserError:
        return sys.maxsize
