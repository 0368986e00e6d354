"""Checkpoints: everything a run needs to continue, in files that execute nothing when read.

    checkpoints/step-000500/model.safetensors      weights
                            optimizer.safetensors  optimizer state
                            state.json             step, tokens, seconds, best validation loss; and
                                                   the SHA-256 of the other two and of itself
    checkpoints/best.json                          the step with the lowest validation loss

A checkpoint is written under another name and renamed when it is whole. The last one is the highest
step that is intact. Only folders with such a name and such a state.json are ever deleted: whatever
else lies beside them is the user's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from torch import Tensor

from common.errors import UserError, as_mistake, check_choice, print_note
from common.files import (
    find_change,
    new_folder,
    patiently,
    read_json,
    read_value,
    remove,
    replace_text,
    sha256,
)
from common.settings import build
from store.settings import readable
from store.weights import MODEL, OPTIMIZER, write_tensors

STATE = "state.json"
SUMS = "sha256"  # by the names of the files; that of state.json is of the rest of its content

BEST = "best.json"
STEP = re.compile(r"step-([0-9]{6,15})")

TensorFiles = Mapping[str, Mapping[str, Tensor]]  # tensors by their names, by their file


@dataclass
class TrainState:
    """How far a run has come.

    seconds: wall-clock time of training, over all its sessions.
    best_val_loss: the lowest of the evaluations, in nats per token, over `best_val_tokens` tokens,
        after `best_step` steps.
    evaluated: the step of the last evaluation, if there was one.
    bad_steps: how many steps were skipped because the loss or the gradient was not finite;
        bad_in_a_row: those since the last step that was applied.
    loss_scale: that of the next step in float16; scaled_steps: how many were applied since it last
        changed.
    fast: what was found to be fast on the CPU, such as bf16.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_val_loss: float | None = None
    best_val_tokens: int | None = None
    best_step: int | None = None
    evaluated: int | None = None
    bad_steps: int = 0
    bad_in_a_row: int = 0
    loss_scale: float | None = None
    scaled_steps: int = 0
    fast: str | None = None

    @property
    def last_evaluation(self) -> int:
        """The last step whose evaluation, if one is due there, is not still to come."""
        return self.step if self.evaluated == self.step else self.step - 1


def state_json(state: TrainState, sums: Mapping[str, str]) -> str:
    """The text of state.json. `sums`: the SHA-256 of the checkpoint's other files, by name."""
    content = asdict(state)
    return json.dumps({**content, SUMS: {**sums, STATE: _digest(content, sums)}}, indent=2) + "\n"


def read_state(checkpoint: Path) -> tuple[TrainState, dict[str, str]]:
    """The state of the run at a checkpoint, and the SHA-256 of its other files by name. Raises
    OSError or ValueError if state.json is missing or damaged."""
    content = read_json(checkpoint / STATE)
    sums = content.pop(SUMS, None) if isinstance(content, dict) else None
    if not isinstance(sums, dict) or sums.pop(STATE, None) != _digest(content, sums):
        raise ValueError("its checksum differs")
    try:
        return build(TrainState, content), sums
    except UserError as error:
        raise ValueError(str(error)) from error


def load_state(checkpoint: Path) -> TrainState:
    """The state of the run at a checkpoint. Raises UserError if the file is damaged."""
    with readable(checkpoint / STATE):
        return read_state(checkpoint)[0]


def _digest(content: Mapping[str, Any], sums: Mapping[str, str]) -> str:
    """The SHA-256 of all that state.json contains but this."""
    return hashlib.sha256(json.dumps([content, sums], sort_keys=True).encode()).hexdigest()


class Checkpoints:
    """The checkpoints of one run, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, files: TensorFiles, state: TrainState, keep: int, every: int = 1) -> Path:
        """Write a checkpoint, and delete all before it but the best one and the newest `keep` of
        those whose step is a multiple of `every`; returns its folder.

        Raises OSError if the disk refuses; the earlier checkpoints are then unchanged.
        """
        target = self._path(state.step)
        if os.path.lexists(target) and not self._is_own(state.step):
            _set_aside(target)
        self.folder.mkdir(exist_ok=True)  # but not the run, if it was deleted or moved
        with new_folder(target) as temporary:
            for file, values in files.items():
                write_tensors(temporary / file, values)
            sums = {file: sha256(temporary / file) for file in files}
            (temporary / STATE).write_text(state_json(state, sums), encoding="utf-8")
            remove(target)  # a damaged one, or that of the same start
        self.complete(state, keep, every)
        return target

    def add_evaluation(self, state: TrainState, keep: int, every: int = 1) -> bool:
        """Replace the state in the checkpoint of the same step by that after its evaluation; False
        if that checkpoint is damaged or gone. Raises OSError if the disk refuses."""
        target = self._path(state.step)
        if not self._is_own(state.step):
            return False
        self._record_best(state)  # first: until the state is replaced, a resume evaluates again
        _, sums = read_state(target)
        replace_text(target / STATE, state_json(state, sums))
        self._prune(state, keep, every)
        return True

    def complete(self, state: TrainState, keep: int, every: int = 1) -> None:
        """What a kill can have prevented after the checkpoint of `state` was written: the rest of
        `save` or `add_evaluation`. Raises OSError if the disk refuses."""
        self._record_best(state)
        self._prune(state, keep, every)

    def find(self, name: str, setting: str) -> Path:
        """The folder of the checkpoint called `name` (`best` or `last`).

        If it is damaged, warns on standard error and returns the newest intact one before it, or
        else the newest. As long as there is no best one, it is the last, with a note. A run in
        training may delete the folder at any time. Raises UserError, naming `setting`, if there is
        none.
        """
        with as_mistake():
            check_choice("checkpoint", name, ("best", "last"))
        run, steps, best = self.folder.parent, self.steps, self.best
        if not steps:
            raise UserError(
                f"{setting}: {run} has no checkpoint; wait for its first (every "
                "trainer.checkpoint_every steps) if it is still training, put one back if it has "
                "lost them, or choose another run"
            )
        wanted = steps[-1]
        if name == "best" and best is not None:
            wanted = best
        elif name == "best":
            print_note(f"note: {run} has no best checkpoint yet; using the last")
        damages: list[str] = []
        for step in sorted({wanted, *steps}, key=lambda step: (step > wanted, -step)):
            damage = self._damage(step)
            if damage is None:
                if damages:
                    print_note(f"warning: {'; '.join(damages)}; using {self._path(step).name}")
                return self._path(step)
            if (self.steps, self.best) != (steps, best):  # the run has saved or deleted one
                return self.find(name, setting)
            damages.append(damage)
        raise UserError(f"{'; '.join(damages)}; no intact checkpoint is left; choose another run")

    def intact(self) -> list[Path]:
        """The folders of the checkpoints, oldest first. Those that are damaged are left out, with a
        warning on standard error."""
        found = []
        for step in self.steps:
            path, damage = self._path(step), self._damage(step)
            if damage is None:
                found.append(path)
            elif path.exists():  # not deleted meanwhile
                print_note(f"warning: {damage}; {path.name} is left out")
        return found

    @property
    def steps(self) -> list[int]:
        """The steps of the checkpoints, intact or not, in order."""
        names = (STEP.fullmatch(path.name) for path in self.folder.glob("step-*"))
        steps = {int(found[1]) for found in names if found}
        return sorted(step for step in steps if self._path(step).is_dir())

    @property
    def best(self) -> int | None:
        """The step in best.json, whose checkpoint may be missing; None: the run has not been
        evaluated."""
        step = read_value(self.folder / BEST, "step")
        return step if type(step) is int and 0 <= step < 10**15 else None

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}"

    def _is_own(self, step: int) -> bool:
        """Whether the folder of a step has the state.json of this step. A copy under another name
        has not."""
        try:
            return read_state(self._path(step))[0].step == step
        except (OSError, ValueError):
            return False

    def _damage(self, step: int) -> str | None:
        """What is wrong with the checkpoint of a step, or None."""
        path = self._path(step)
        try:
            state, sums = read_state(path)
        except (OSError, ValueError):
            return f"{path / STATE} is missing or damaged"
        if state.step != step or sums.keys() != {MODEL, OPTIMIZER}:
            return f"{path / STATE} is not that of this checkpoint"
        return find_change(path, sums)

    def _record_best(self, state: TrainState) -> None:
        if state.best_step not in (None, self.best):
            replace_text(self.folder / BEST, json.dumps({"step": state.best_step}) + "\n")

    def _prune(self, state: TrainState, keep: int, every: int) -> None:
        before = [step for step in self.steps if step <= state.step]
        # The rest are former bests or stopping points.
        regular = [step for step in before if step % every == 0]
        kept = {state.best_step, state.step, *regular[-keep:]}
        for step in before:
            if step not in kept and self._is_own(step):
                remove(self._path(step))


def _set_aside(path: Path) -> None:
    """Rename what is in the way of a checkpoint, and say so."""
    free = next(other for i in count(1) if not os.path.lexists(other := Path(f"{path}-{i}")))
    patiently(path.rename, free)
    print_note(f"note: {path} is no intact checkpoint of this run; it is now {free.name}")
