"""Checkpoints: everything a run needs to continue, in files that execute nothing when read.

    checkpoints/step-000500/model.safetensors      weights
                            optimizer.safetensors  optimizer state
                            state.json             step, tokens, seconds, best validation loss
                            SHA256SUMS             of the other three, as `sha256sum --check` reads
                            evaluated.json         state.json after the evaluation at this step
    checkpoints/last -> step-000500                the newest
    checkpoints/best -> step-000400                the lowest validation loss

Where there are no symbolic links, `last` and `best` are files with the name of a folder. A folder
under its final name is complete, also while it is deleted. Later damage is detected by checksums
before any file is used.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from errors import UserError
from files import (
    find_damage,
    fsync,
    real_path,
    remove,
    replace_folder,
    replace_link,
    replace_text,
    write_sums,
)
from model import full_tensor
from training.optimizer import Optimizer
from training.progress import EVALUATED, STATE, Progress, as_json, load_progress
from training.weights import MODEL, OPTIMIZER

NAMES = ("best", "last")
FILES = (MODEL, OPTIMIZER, STATE)


class Checkpoints:
    """The checkpoints of one run, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        progress: Progress,
        *,
        is_best: bool,
        keep: int,
        writes: bool = True,
    ) -> Path:
        """Write a checkpoint, point `last` (and `best`) to it, and delete all but the newest `keep`
        and the best.

        All ranks must call it, since each may hold a part of the tensors; only the one that
        `writes` touches the disk. Raises UserError if the disk refuses; the earlier checkpoints are
        then unchanged.
        """
        contents: dict[str, dict[str, Tensor]] = {MODEL: {}, OPTIMIZER: {}}
        for file, tensors in contents.items():
            parts = model.named_parameters() if file == MODEL else optimizer.state_tensors().items()
            for name, each in parts:
                full = full_tensor(each.detach())
                if writes:  # no other rank keeps the whole model
                    tensors[name] = full.cpu().contiguous()
        target = self.folder / f"step-{progress.step:06d}"
        if not writes:
            return target

        def fill(folder: Path) -> None:
            for name, tensors in contents.items():
                safetensors.torch.save_file(tensors, folder / name)

        try:
            remove(target / EVALUATED)  # of the step before a resume from earlier
            self._write(target, progress, fill)
            for name in NAMES if is_best else ("last",):
                self._point(name, target)
            fsync(self.folder)
        except (OSError, SafetensorError) as error:
            raise self._refused(error) from error
        self._prune(keep)
        return target

    def create(self, write_weights: Callable[[Path], None]) -> None:
        """Write the first checkpoint of a run that has not been trained, which is its last and its
        best; `write_weights(file)` writes its weights."""

        def fill(folder: Path) -> None:
            write_weights(folder / MODEL)
            safetensors.torch.save_file({}, folder / OPTIMIZER)

        target = self.folder / "step-000000"
        self._write(target, Progress(), fill)
        for name in NAMES:
            self._point(name, target)

    def _write(self, target: Path, progress: Progress, fill: Callable[[Path], None]) -> None:
        """Write the files of a checkpoint; `fill(folder)` writes its tensors."""
        with replace_folder(target) as temporary:
            fill(temporary)
            (temporary / STATE).write_text(as_json(progress), encoding="utf-8")
            for name in (MODEL, OPTIMIZER):  # safetensors makes them readable by their owner only
                shutil.copymode(temporary / STATE, temporary / name)
            write_sums(temporary, FILES)

    def _refused(self, error: Exception) -> UserError:
        reason = getattr(error, "strerror", None) or error
        run = shlex.quote(str(self.folder.parent))
        return UserError(
            f"{self.folder}: the checkpoint cannot be written ({reason}); earlier ones are "
            f"intact: free some space, then continue with resume={run}"
        )

    def add_evaluation(self, progress: Progress, *, is_best: bool, keep: int) -> None:
        """Add the progress after an evaluation to the checkpoint of the same step, which becomes
        `best` if it is the best. Raises UserError if the disk refuses."""
        target = self.folder / f"step-{progress.step:06d}"
        try:
            if is_best:
                self._point("best", target)
                fsync(self.folder)
            replace_text(target / EVALUATED, as_json(progress))
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
            return load_progress(self._target("last")).best_val_loss is None
        except UserError:  # there is none, or it is damaged
            return False

    def _steps(self) -> list[Path]:
        """All checkpoint folders, oldest first."""
        return sorted((path for path in self.folder.glob("step-*") if path.is_dir()), key=_step)

    def _point(self, name: str, target: Path) -> None:
        """Make `last` or `best` a link to a checkpoint, or else a file with its name: some disks
        have no links, and on Windows they are not used."""
        link = self.folder / name
        try:
            replace_link(link, target.name)
        except OSError:
            replace_text(link, target.name)

    def _target(self, name: str) -> Path:
        """What `last` or `best` points to."""
        link = self.folder / name
        if link.is_file():
            return real_path(self.folder) / link.read_text(encoding="utf-8", errors="replace")
        return real_path(link)

    def _prune(self, keep: int) -> None:
        last = self._target("last")
        # Checkpoints after `last` are stale: the run was resumed from an earlier step.
        steps = [path for path in self._steps() if _step(path) <= _step(last)]
        kept = {self._target("best"), *(real_path(path) for path in steps[-keep:])}
        for path in [*self._steps(), *self.folder.glob(".step-*")]:
            if real_path(path) not in kept:
                remove(path)


def _step(path: Path) -> int:
    """The step of a checkpoint folder: from its name, or from state.json if a link was copied."""
    digits = path.name.removeprefix("step-")
    if digits.isdecimal():
        return int(digits)
    try:
        return load_progress(path).step
    except UserError:
        return sys.maxsize
