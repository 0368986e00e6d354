"""From which steps a run can be trained on another way: the checkpoints of a run of glassgpt's
train.py, in the folder of its event files."""

from __future__ import annotations

import re
import shlex
from itertools import islice
from pathlib import Path
from typing import Any

from tensorboard_attention.limits import MOST_CHECKPOINTS
from tensorboard_attention.records import is_plain

STEP = re.compile(r"step-(\d{6,12})")


def find_checkpoints(folder: Path) -> dict[str, Any] | None:
    """The `steps` of the checkpoints of a run, and the `command` that branches off from it; None if
    it has none."""
    # A shell reads the command: a name with control characters could end its quotes.
    if not (is_plain(folder / "config.yaml") and str(folder).isprintable()):
        return None
    names = (path.name for path in islice((folder / "checkpoints").glob("*"), MOST_CHECKPOINTS))
    steps = sorted(int(name[1]) for name in map(STEP.fullmatch, names) if name)
    command = f"python train.py branch={shlex.quote(str(folder))}"
    return {"command": command, "steps": steps} if steps else None
