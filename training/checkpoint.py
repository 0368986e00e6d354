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

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from errors import UserError, check_range
from files import (
    find_damage,
    fsync,
    read_json,
    real_path,
    remove_folder,
    replace_folder,
    replace_link,
    replace_text,
    write_sums,
)
from model import GPT, ModelConfig
from training.optimizer import Optimizer
from training.ranks import full_tensor

FLOATS = ("F64", "F32", "F16", "BF16")
NAMES = ("best", "last")
MODEL, OPTIMIZER, STATE = FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
EVALUATED = "evaluated.json"


@dataclass
class Progress:
    """How far a run has come. `seconds` is wall-clock time of training, over all its sessions;
    `evaluated` is the step of the last evaluation; `bad_steps` counts steps that were skipped
    because a number in them was not finite, `bad_in_a_row` those since the last step that was
    applied."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_val_loss: float | None = None
    evaluated: int = 0
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
            (target / EVALUATED).unlink(missing_ok=True)  # of the step before a resume from earlier
            with replace_folder(target) as temporary:
                for name, tensors in contents.items():
                    safetensors.torch.save_file(tensors, temporary / name)
                (temporary / STATE).write_text(_state(progress), encoding="utf-8")
                for name in contents:  # safetensors makes its files readable by their owner only
                    shutil.copymode(temporary / STATE, temporary / name)
                write_sums(temporary, FILES)
            for name in NAMES if is_best else ("last",):
                self._point(name, target)
            fsync(self.folder)
        except (OSError, SafetensorError) as error:
            raise self._refused(error) from error
        self._prune(keep)
        return target

    def _refused(self, error: Exception) -> UserError:
        reason = getattr(error, "strerror", None) or error
        return UserError(
            f"{self.folder}: the checkpoint cannot be written ({reason}); earlier ones are "
            f"intact: free some space, then continue with resume={self.folder.parent}"
        )

    def add_evaluation(self, progress: Progress, *, is_best: bool, keep: int) -> None:
        """Add the progress after an evaluation to the checkpoint of the same step, which becomes
        `best` if it is the best. Raises UserError if the disk refuses."""
        target = self.folder / f"step-{progress.step:06d}"
        try:
            if is_best:
                self._point("best", target)
                fsync(self.folder)
            replace_text(target / EVALUATED, _state(progress))
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
            if link.is_dir() and not link.is_symlink():  # a copied link
                shutil.rmtree(link)
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
                remove_folder(path)


def _state(progress: Progress) -> str:
    return json.dumps(asdict(progress), indent=2) + "\n"


def _step(path: Path) -> int:
    """The step of a checkpoint folder: from its name, or from state.json if a link was copied."""
    digits = path.name.removeprefix("step-")
    if digits.isdecimal():
        return int(digits)
    try:
        return load_progress(path).step
    except UserError:
        return sys.maxsize


def check_weights(config: ModelConfig, vocab_size: int, checkpoint: Path) -> int:
    """The bytes of memory that the model takes. Raises UserError unless the weights are those of
    such a model. Reads only their names, types and shapes, and takes no memory."""
    try:
        with torch.device("meta"):
            model = GPT(config, vocab_size)
    except RuntimeError as error:
        raise UserError(f"{checkpoint}: the model is too large; choose another run") from error
    expected = {name: list(each.shape) for name, each in model.named_parameters()}
    with _readable(checkpoint / MODEL) as path, safe_open(path, "pt") as file:
        found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        for name in (*expected, *found):
            if name not in found or name not in expected:
                what = "missing" if name in expected else "not a part of the model"
                raise ValueError(f"{name} is {what}")
            if found[name].get_shape() != expected[name]:
                raise ValueError(
                    f"{name} has the shape {found[name].get_shape()}; the model in config.yaml "
                    f"needs {expected[name]}"
                )
            if found[name].get_dtype() not in FLOATS:
                raise ValueError(f"{name} has the type {found[name].get_dtype()}")
    tensors = (*model.parameters(), *model.buffers())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Load weights into a model. Raises UserError if they are damaged, do not fit, or are not
    finite."""
    with _readable(checkpoint / MODEL) as path:
        safetensors.torch.load_model(model, path)
        for name, parameter in model.named_parameters():
            if not parameter.isfinite().all():
                raise ValueError(f"{name} has values that are not finite")


def load_progress(checkpoint: Path) -> Progress:
    """The progress of the run at a checkpoint. Raises UserError if the file is damaged."""
    with _readable(checkpoint / STATE) as path:
        progress = _read_state(path)
    with contextlib.suppress(OSError, ValueError):  # without it, the run evaluates again
        evaluated = _read_state(checkpoint / EVALUATED)
        progress = evaluated if evaluated.step == progress.step else progress
    return progress


def _read_state(path: Path) -> Progress:
    """Raises OSError or ValueError if the file is missing or damaged."""
    state = read_json(path)
    if not isinstance(state, dict):
        raise ValueError("unexpected content")
    state.setdefault("evaluated", state.get("step"))  # older runs evaluated before they saved
    if state.keys() != asdict(Progress()).keys():
        raise ValueError("unexpected content")
    for name, value in state.items():
        kinds = (int, float) if name in ("seconds", "best_val_loss") else (int,)
        if value is None and name == "best_val_loss":
            continue
        if type(value) not in kinds:
            raise ValueError(f"{name} is not a number")
        check_range(name, value, 0, 10**15)
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
