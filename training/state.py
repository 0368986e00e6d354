"""How far a run has come: state.json of a checkpoint, with the checksums of the checkpoint."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError, check_choice, check_range
from common.files import read_json
from common.settings import build
from training.stored import readable

STATE = "state.json"
SUMS = "sha256"  # by the names of the files; that of state.json is of the rest of its content


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

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, int | float):
                check_range(name, value, 0, 10**15 if isinstance(value, int) else math.inf)
        if self.fast is not None:
            check_choice("fast", self.fast, ("fp32", "bf16", "fp16"))


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
