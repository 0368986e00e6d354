"""How far a run has come, and the two files of a checkpoint that say so.

state.json      the state when the checkpoint was written
evaluated.json  the state after the evaluation at this step
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError

from errors import UserError, check_range
from files import read_json

STATE, EVALUATED = "state.json", "evaluated.json"
OPTIONAL = ("best_val_loss", "best_val_tokens", "best_step", "evaluated")


@dataclass
class TrainState:
    """How far a run has come.

    seconds: wall-clock time of training, over all its sessions.
    best_val_loss: the lowest of the evaluations, in nats per token, over `best_val_tokens` tokens,
        after `best_step` steps.
    evaluated: the step of the last evaluation: 0 before the first, but None if the initial weights
        are worth one, since they come from another run.
    bad_steps: how many steps were skipped because the loss or the gradient was not finite;
        bad_in_a_row: those since the last step that was applied.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_val_loss: float | None = None
    best_val_tokens: int | None = None
    best_step: int | None = None
    evaluated: int | None = 0
    bad_steps: int = 0
    bad_in_a_row: int = 0

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


def load_state(checkpoint: Path) -> TrainState:
    """The state of the run at a checkpoint. Raises UserError if the file is damaged."""
    with readable(checkpoint / STATE) as path:
        state = _read(path)
    with suppress(OSError, ValueError):  # without it, the run evaluates again
        evaluated = _read(checkpoint / EVALUATED)
        state = evaluated if evaluated.step == state.step else state
    return state


def _read(path: Path) -> TrainState:
    """Raises OSError or ValueError if the file is missing or damaged."""
    values = read_json(path)
    if not isinstance(values, dict) or values.keys() != asdict(TrainState()).keys():
        raise ValueError("unexpected content")
    for name, value in values.items():
        if value is None and name in OPTIONAL:
            continue
        kind = float if name in ("seconds", "best_val_loss") else int
        if type(value) not in (int, kind):
            raise ValueError(f"{name} is not a number")
        check_range(name, value, 0, 10**15)
        values[name] = kind(value)
    return TrainState(**values)


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """Raise UserError, naming the file, if the block cannot use it."""
    try:
        yield path
    except (OSError, SafetensorError, RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path}: cannot be read ({reason}); choose another checkpoint or run"
        ) from error
