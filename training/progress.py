"""How far a run has come, and the files of a checkpoint that say so.

state.json      the progress when the checkpoint was written
evaluated.json  the progress after the evaluation at this step
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError

from errors import UserError, check_range
from files import read_json

STATE, EVALUATED = "state.json", "evaluated.json"


@dataclass
class Progress:
    """How far a run has come. `seconds` is wall-clock time of training, over all its sessions;
    `best_val_tokens` is how many tokens the best evaluation scored (None in older runs), and
    `evaluated` the step of the last evaluation: 0 before the first, but None if the initial weights
    are worth one, since they come from another run; `bad_steps` counts steps that were skipped
    because a number in them was not finite, `bad_in_a_row` those since the last step that was
    applied."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_val_loss: float | None = None
    best_val_tokens: int | None = None
    evaluated: int | None = 0
    bad_steps: int = 0
    bad_in_a_row: int = 0


def as_json(progress: Progress) -> str:
    return json.dumps(asdict(progress), indent=2) + "\n"


def load_progress(checkpoint: Path) -> Progress:
    """The progress of the run at a checkpoint. Raises UserError if the file is damaged."""
    with readable(checkpoint / STATE) as path:
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
    state.setdefault("best_val_tokens", None)
    if state.keys() != asdict(Progress()).keys():
        raise ValueError("unexpected content")
    for name, value in state.items():
        kind = float if name in ("seconds", "best_val_loss") else int
        if value is None and name in ("best_val_loss", "best_val_tokens", "evaluated"):
            continue
        if type(value) not in (int, kind):
            raise ValueError(f"{name} is not a number")
        check_range(name, value, 0, 10**15)
        state[name] = kind(value)
    return Progress(**state)


@contextlib.contextmanager
def readable(path: Path) -> Iterator[Path]:
    """Raise UserError, naming the file, if the block cannot use it."""
    try:
        yield path
    except (OSError, SafetensorError, RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path}: cannot be read ({reason}); choose another checkpoint or run"
        ) from error
