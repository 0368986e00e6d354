"""Checkpoints: everything a run needs to go on, in files that execute nothing when read.

    checkpoints/step-000500/model.safetensors      weights
                            optimizer.safetensors  optimizer state
                            state.json             step, tokens, seconds, best validation loss
                            SHA256SUMS             of the other three, as `sha256sum --check` reads
    checkpoints/last -> step-000500                the newest
    checkpoints/best -> step-000400                the lowest validation loss

A folder under its final name is whole: it is written under a temporary name, flushed to disk, and
renamed. Whatever damages it later is found by its checksums before anything is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import nn

from data.cache import fsync
from errors import UserError
from training.optimizer import Optimizer
from training.ranks import whole

NAMES = ("best", "last")
MODEL, OPTIMIZER, STATE = FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
SUMS = "SHA256SUMS"


@dataclass
class Progress:
    """How far a run has come. `seconds` is wall-clock time in the loop, over all its sessions;
    `bad_steps` counts steps left out because a number in them was not finite, `bad_in_a_row` those
    since the last good one."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_val_loss: float | None = None
    bad_steps: int = 0
    bad_in_a_row: int = 0


class Checkpoints:
    """The checkpoints of one run, in `folder`: the newest `keep` and the best are kept.

    Of several ranks all must call `save`, since each may hold a part of the tensors; only the one
    that `writes` touches the disk.
    """

    def __init__(self, folder: Path, keep: int = 2, writes: bool = True) -> None:
        self.folder, self.keep, self.writes = folder, keep, writes

    def save(self, model: nn.Module, optimizer: Optimizer, progress: Progress, best: bool) -> Path:
        """Write a checkpoint, point `last` (and `best`) to it, and drop the old ones.

        Raises UserError if the disk refuses; the checkpoints before it are then as they were.
        """
        contents = {
            file: {name: whole(each.detach()).cpu().contiguous() for name, each in tensors}
            for file, tensors in (
                (MODEL, model.named_parameters()),
                (OPTIMIZER, optimizer.state_tensors().items()),
            )
        }
        target = self.folder / f"step-{progress.step:06d}"
        if not self.writes:
            return target
        temporary = self.folder / f".{target.name}.{os.getpid()}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            for name, tensors in contents.items():
                safetensors.torch.save_file(tensors, temporary / name)
            (temporary / STATE).write_text(json.dumps(asdict(progress), indent=2) + "\n")
            for name in contents:  # safetensors keeps its files from all other users
                shutil.copymode(temporary / STATE, temporary / name)
            sums = "".join(f"{_sha256(temporary / name)}  {name}\n" for name in FILES)
            (temporary / SUMS).write_text(sums)
            for path in [*temporary.iterdir(), temporary]:
                fsync(path)
            if target.exists():  # of the same step, from before the run was cut and resumed
                shutil.rmtree(target)
            temporary.rename(target)
            for name in NAMES if best else ("last",):
                self._point(name, target)
            fsync(self.folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"{self.folder}: no checkpoint can be written ({reason}); those before it are "
                f"whole: make room there, then go on with resume={self.folder.parent}"
            ) from error
        self._prune()
        return target

    def find(self, name: str, setting: str) -> Path:
        """The folder of the checkpoint called `name` (`best` or `last`).

        If it is damaged, says so on standard error and takes the newest good one before it. Raises
        UserError, naming `setting`, if there is none.
        """
        if name not in NAMES:
            raise UserError(f"checkpoint: {name!r} is unknown; choose one of {', '.join(NAMES)}")
        wanted = _step(Path(os.path.realpath(self.folder / name)))
        found = self._steps()
        if not found:
            raise UserError(
                f"{setting}: {self.folder.parent} has no checkpoint (the first comes after "
                "trainer.checkpoint_every steps); wait if it still trains, or give another run"
            )
        candidates = [path for path in found if _step(path) <= wanted]
        is_there = wanted in map(_step, found)
        damages = [] if is_there else [f"{self.folder / name} is missing or damaged"]
        for path in reversed(candidates or found):
            damage = _damage(path)
            if damage is None:
                if damages:
                    told = "; ".join(damages)
                    print(f"warning: {told}; taking {path.name} instead", file=sys.stderr)
                return path.resolve()
            damages.append(damage)
        raise UserError(
            f"{'; '.join(damages)}; no checkpoint before it is good: try checkpoint=last with "
            "sample.py, or give another run"
        )

    def __bool__(self) -> bool:
        """Whether there is any checkpoint, good or not."""
        return bool(self._steps())

    def _steps(self) -> list[Path]:
        """All folders of checkpoints, oldest first."""
        return sorted((path for path in self.folder.glob("step-*") if path.is_dir()), key=_step)

    def _point(self, name: str, target: Path) -> None:
        link = self.folder / f".{name}.{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(target.name)
        if (self.folder / name).is_dir() and not (self.folder / name).is_symlink():
            shutil.rmtree(self.folder / name)  # a copy of the run has made folders of links
        link.replace(self.folder / name)

    def _prune(self) -> None:
        last = (self.folder / "last").resolve()
        # Those after `last` are of a run that was cut, and has taken another course.
        steps = [path for path in self._steps() if _step(path) <= _step(last)]
        kept = {(self.folder / "best").resolve(), *(path.resolve() for path in steps[-self.keep :])}
        for path in [*self._steps(), *self.folder.glob(".step-*")]:
            if path.resolve() not in kept:
                shutil.rmtree(path, ignore_errors=True)


def _step(path: Path) -> int:
    """The step of a checkpoint's folder; of one that a copy made of a link, by its contents."""
    digits = path.name.removeprefix("step-")
    if digits.isdecimal():
        return int(digits)
    try:
        return load_progress(path).step
    except UserError:
        return sys.maxsize


def _damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint's files, or None."""
    try:
        sums = (checkpoint / SUMS).read_text()
    except (OSError, UnicodeDecodeError):
        return f"{checkpoint / SUMS} is missing or damaged"
    lines = (line.partition("  ") for line in sums.splitlines())
    expected = {name: digest for digest, _, name in lines}
    if expected.keys() != set(FILES):
        return f"{checkpoint / SUMS} is missing or damaged"
    for name in FILES:
        path = checkpoint / name
        if not path.is_file():
            return f"{path} is missing"
        try:
            if _sha256(path) != expected[name]:
                return f"{path} is damaged (its checksum differs)"
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
    return None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Fill the model with a checkpoint's weights. Raises UserError if damaged or of no fit."""
    with _readable(checkpoint / MODEL) as path:
        safetensors.torch.load_model(model, path)


def load_progress(checkpoint: Path) -> Progress:
    """How far the run had come. Raises UserError if the file does not hold what it should."""
    with _readable(checkpoint / STATE) as path:
        state = json.loads(path.read_text())
        if not isinstance(state, dict) or state.keys() != asdict(Progress()).keys():
            raise ValueError("it does not hold what it should")
        counts = ("step", "tokens", "bad_steps", "bad_in_a_row")
        if not all(isinstance(state[key], int) for key in counts):
            raise ValueError(f"{', '.join(counts)} must be whole numbers")
        return Progress(**state)


def load_optimizer(optimizer: Optimizer, checkpoint: Path) -> None:
    """Fill the optimizer with a checkpoint's state. Raises UserError if damaged or of no fit."""
    with _readable(checkpoint / OPTIMIZER) as path:
        optimizer.load_state_tensors(safetensors.torch.load_file(path))


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[Path]:
    try:
        yield path
    except (OSError, SafetensorError, RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: cannot be read ({reason}); choose another checkpoint") from error
