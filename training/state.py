"""How far a run has come: state.json and evaluated.json of a checkpoint."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from common.errors import check_range
from common.files import read_json
from training.stored import from_plain, readable

STATE, EVALUATED = "state.json", "evaluated.json"


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

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None:
                check_range(name, value, 0, 10**15)

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


def load_state(checkpoint: Path) -> TrainState:
    """The state of the run at a checkpoint. Raises UserError if the file is damaged."""
    with readable(checkpoint / STATE) as path:
        state = from_plain(TrainState, read_json(path))
    with suppress(OSError, ValueError, TypeError):  # without it, the run evaluates again
        evaluated = from_plain(TrainState, read_json(checkpoint / EVALUATED))
        state = evaluated if evaluated.step == state.step else state
    return state
