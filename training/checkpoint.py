"""Checkpoints: everything a run needs to go on, in files that execute nothing when read.

    checkpoints/step-000500/model.safetensors      weights
                            optimizer.safetensors  optimizer state
                            state.json             step, tokens, seconds, best validation loss
    checkpoints/last -> step-000500                the newest
    checkpoints/best -> step-000400                the lowest validation loss

A folder under its final name is whole: it is written under a temporary name, flushed to disk, and
renamed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import nn

from errors import UserError
from training.optimizer import Optimizer

NAMES = ("best", "last")


@dataclass
class Progress:
    """How far a run has come. `seconds` is wall-clock time in the loop, over all its sessions."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_val_loss: float | None = None


class Checkpoints:
    """The checkpoints of one run, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, model: nn.Module, optimizer: Optimizer, progress: Progress, best: bool) -> Path:
        """Write a checkpoint, point `last` (and `best`) to it, and drop those not pointed to."""
        target = self.folder / f"step-{progress.step:06d}"
        temporary = self.folder / f".{target.name}.{os.getpid()}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        safetensors.torch.save_model(model, str(temporary / "model.safetensors"))
        safetensors.torch.save_file(
            {name: tensor.contiguous() for name, tensor in optimizer.state_tensors().items()},
            temporary / "optimizer.safetensors",
        )
        (temporary / "state.json").write_text(json.dumps(asdict(progress), indent=2) + "\n")
        for path in [*temporary.iterdir(), temporary]:
            _fsync(path)
        # There may be one that a killed process left before it could point to it.
        shutil.rmtree(target, ignore_errors=True)
        temporary.rename(target)
        self._point("last", target)
        if best:
            self._point("best", target)
        _fsync(self.folder)
        self._prune()
        return target

    def find(self, name: str, setting: str) -> Path:
        """The folder of the checkpoint called `name` (`best` or `last`).

        Raises UserError, naming `setting`, if there is none.
        """
        if name not in NAMES:
            raise UserError(f"checkpoint: {name!r} is unknown; choose one of {', '.join(NAMES)}")
        path = self.folder / name
        if not (path / "state.json").is_file():
            raise UserError(
                f"{setting}: {self.folder.parent} has no checkpoint (the first comes after "
                "trainer.checkpoint_every steps); wait if it still trains, or give another run"
            )
        return path.resolve()

    def _point(self, name: str, target: Path) -> None:
        link = self.folder / f".{name}.{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(target.name)
        link.replace(self.folder / name)

    def _prune(self) -> None:
        kept = {(self.folder / name).resolve() for name in NAMES}
        for path in [*self.folder.glob("step-*"), *self.folder.glob(".step-*")]:
            if path.resolve() not in kept:
                shutil.rmtree(path)


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Fill the model with a checkpoint's weights. Raises UserError if damaged or of no fit."""
    with _readable(checkpoint / "model.safetensors") as path:
        safetensors.torch.load_model(model, path)


def load_training_state(optimizer: Optimizer, checkpoint: Path) -> Progress:
    """Fill the optimizer with a checkpoint's state; returns how far the run had come."""
    with _readable(checkpoint / "optimizer.safetensors") as path:
        optimizer.load_state_tensors(safetensors.torch.load_file(path))
    with _readable(checkpoint / "state.json") as path:
        state = json.loads(path.read_text())
        if not isinstance(state, dict) or state.keys() != asdict(Progress()).keys():
            raise ValueError("it does not hold what it should")
        if not isinstance(state["step"], int) or not isinstance(state["tokens"], int):
            raise ValueError("step and tokens must be whole numbers")
        return Progress(**state)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[Path]:
    try:
        yield path
    except (OSError, SafetensorError, RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: cannot be read ({reason}); choose another checkpoint") from error


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
