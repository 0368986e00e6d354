"""From which steps a run can be trained on another way: the checkpoints of a run of glassgpt's
train.py, in the folder of its event files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from tensorboard_attention.limits import MOST_CHECKPOINTS
from tensorboard_attention.records import is_plain

STEP = re.compile(r"step-(\d{6,12})")


def find_checkpoints(folders: Iterable[tuple[str, Path]]) -> dict[str, dict[str, Any]]:
    """For each run, given with its folder, that has checkpoints: their `steps`, and the `command`
    that branches off from the run."""
    found = {}
    for run, folder in folders:
        # A shell reads the command: a name with control characters could end its quotes.
        if not (is_plain(folder / "config.yaml") and str(folder).isprintable()):
            continue
        names = (path.name for path in islice((folder / "checkpoints").glob("*"), MOST_CHECKPOINTS))
        steps = sorted(int(name[1]) for name in map(STEP.fullmatch, names) if name)
        if steps:
            command = f"python train.py branch={shlex.quote(str(folder))}"
            found[run] = {"command": command, "steps": steps}
    return found
