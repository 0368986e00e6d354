"""Checkpoints: everything a run needs to continue, in files that execute nothing when read.

    checkpoints/step-000500/model.safetensors      weights
                            optimizer.safetensors  optimizer state
                            state.json             step, tokens, seconds, best validation loss
                            SHA256SUMS             of the other three, as `sha256sum --check` reads
    checkpoints/last -> step-000500                the newest
    checkpoints/best -> step-000400                the lowest validation loss

A folder under its final name is complete, also while it is deleted. Later damage is detected by
checksums before any file is used.
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

from errors import UserError
from files import fsync, remove_folder, replace_folder, replace_link
from training.optimizer import Optimizer
from training.ranks import full_tensor

NAMES = ("best", "last")
MODEL, OPTIMIZER, STATE = FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
SUMS = "SHA256SUMS"


@dataclass
class Progress:
    """How far a run has come. `seconds` is wall-clock time in the loop, over all its sessions;
    `bad_steps` counts steps that were skipped because a number in them was not finite,
    `bad_in_a_row` those since the last step that was applied."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_val_loss: float | None = None
    bad_steps: int = 0
    bad_in_a_row: int = 0


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
        contents = {
            file: {name: full_tensor(each.detach()).cpu().contiguous() for name, each in tensors}
            for file, tensors in (
                (MODEL, model.named_parameters()),
                (OPTIMIZER, optimizer.state_tensors().items()),
            )
        }
        target = self.folder / f"step-{progress.step:06d}"
        if not writes:
            return target
        try:
            with replace_folder(target) as temporary:
                for name, tensors in contents.items():
                    safetensors.torch.save_file(tensors, temporary / name)
                (temporary / STATE).write_text(json.dumps(asdict(progress), indent=2) + "\n")
                for name in contents:  # safetensors makes its files readable by their owner only
                    shutil.copymode(temporary / STATE, temporary / name)
                sums = "".join(f"{_sha256(temporary / name)}  {name}\n" for name in FILES)
                (temporary / SUMS).write_text(sums)
            for name in NAMES if is_best else ("last",):
                replace_link(self.folder / name, target.name)
            fsync(self.folder)
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"{self.folder}: the checkpoint cannot be written ({reason}); earlier ones are "
                f"intact: free some space, then continue with resume={self.folder.parent}"
            ) from error
        self._prune(keep)
        return target

    def find(self, name: str, setting: str) -> Path:
        """The folder of the checkpoint called `name` (`best` or `last`).

        If it is damaged, warns on standard error and returns the newest intact one before it. A run
        without an evaluation has no best one yet: then it is the last, with a note. A run in
        training may delete the returned folder at any time. Raises UserError, naming `setting`,
        if there is none.
        """
        if name not in NAMES:
            raise UserError(f"checkpoint: {name!r} is unknown; choose one of {', '.join(NAMES)}")
        target = os.path.realpath(self.folder / name)
        found = self._steps()
        if os.path.realpath(self.folder / name) != target:  # replaced meanwhile
            return self.find(name, setting)
        wanted = _step(Path(target))
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
            damage = _damage(path)
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

    def __bool__(self) -> bool:
        """Whether there is any checkpoint, intact or not."""
        return bool(self._steps())

    def _is_unmeasured(self) -> bool:
        try:
            return load_progress(self.folder / "last").best_val_loss is None
        except UserError:  # there is none, or it is damaged
            return False

    def _steps(self) -> list[Path]:
        """All checkpoint folders, oldest first."""
        return sorted((path for path in self.folder.glob("step-*") if path.is_dir()), key=_step)

    def _prune(self, keep: int) -> None:
        last = (self.folder / "last").resolve()
        # Checkpoints after `last` are stale: the run was resumed from an earlier step.
        steps = [path for path in self._steps() if _step(path) <= _step(last)]
        kept = {(self.folder / "best").resolve(), *(path.resolve() for path in steps[-keep:])}
        for path in [*self._steps(), *self.folder.glob(".step-*")]:
            if path.resolve() not in kept:
                remove_folder(path)


def _step(path: Path) -> int:
    """The step of a checkpoint folder: from its name, or from state.json if a link was copied."""
    digits = path.name.removeprefix("step-")
    if digits.isdecimal():
        return int(digits)
    try:
        return load_progress(path).step
    except UserError:
        return sys.maxsize


def _damage(checkpoint: Path) -> str | None:
    """What is wrong with the files of a checkpoint, or None."""
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
    """Load weights into a model. Raises UserError if they are damaged or do not fit."""
    with _readable(checkpoint / MODEL) as path:
        safetensors.torch.load_model(model, path)


def load_progress(checkpoint: Path) -> Progress:
    """The progress of the run at a checkpoint. Raises UserError if the file is damaged."""
    with _readable(checkpoint / STATE) as path:
        state = json.loads(path.read_text())
        if not isinstance(state, dict) or state.keys() != asdict(Progress()).keys():
            raise ValueError("unexpected content")
        counts = ("step", "tokens", "bad_steps", "bad_in_a_row")
        if not all(isinstance(state[key], int) for key in counts):
            raise ValueError(f"{', '.join(counts)} must be integers")
        return Progress(**state)


def load_optimizer(optimizer: Optimizer, checkpoint: Path) -> None:
    """Load the state of an optimizer. Raises UserError if it is damaged or does not fit."""
    with _readable(checkpoint / OPTIMIZER) as path:
        optimizer.load_state_tensors(safetensors.torch.load_file(path))


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[Path]:
    try:
        yield path
    except (OSError, SafetensorError, RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path}: cannot be read ({reason}); choose another checkpoint or run"
        ) from error
