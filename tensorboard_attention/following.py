"""The page that follows a run in training, which has `live/` in the folder of its event files:

    model.json   what the page needs to know of the model and its tokenizer
    names.json   by step, what each head is called: a list of the five fields of `HeadName`, by
                 layer and head
    STEP.bin     the weights at this step

The page is another distribution's, which can run the model: a function in the group GROUP of its
entry points, that takes the value in model.json and a text for each step that changes with its
weights, and returns the HTML of the page, its Content Security Policy and the script of its worker,
or raises ValueError. The folder can come from anywhere: only
regular files in it are read, and links are not followed.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from tensorboard_attention.beside import read_beside
from tensorboard_attention.evidence import names_of, read_evidence
from tensorboard_attention.header import check_type
from tensorboard_attention.records import is_plain
from tensorboard_attention.strict import from_json

GROUP = "tensorboard_attention.live"
FOLDER = "live"
MODEL, NAMES = "model.json", "names.json"
WEIGHTS = re.compile(r"(0|[1-9][0-9]{0,11})\.bin")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@cache
def _maker() -> EntryPoint | None:
    """What makes the page, if a distribution that can is installed."""
    return next(iter(entry_points(group=GROUP)), None)


def is_followed(folder: Path) -> bool:
    """Whether a page can follow a run."""
    return _maker() is not None and is_plain(folder / FOLDER / MODEL) and bool(steps(folder))


def follow_page(folder: Path) -> tuple[str, str, str]:
    """The page of a run: its HTML, its policy, and the script of its worker.

    Raises OSError or ValueError if there is none, and ImportError if the distribution that makes it
    has no modules.
    """
    maker, versions = _maker(), steps(folder)
    if maker is None or not versions:
        raise OSError(0, "there is no page")
    return maker.load()(from_json(_read(folder, MODEL)), versions)


def steps(folder: Path) -> dict[int, str]:
    """The steps of a run whose weights are there, with a text that changes with the weights."""
    found = {}
    if (folder / FOLDER).is_symlink():
        return {}
    for path in (folder / FOLDER).glob("*.bin"):
        name = WEIGHTS.fullmatch(path.name)
        if name and is_plain(path):
            about = path.stat()
            found[int(name[1])] = f"{about.st_mtime_ns}.{about.st_ino}"
    return dict(sorted(found.items()))


def read_weights(folder: Path, step: int) -> bytes:
    """The weights of a step. Raises OSError if there are none, and ValueError if they are too
    large."""
    return _read(folder, f"{step}.bin")


def read_names(folder: Path) -> Any:
    """What heads are called, by step; at that of the evidence, as it says. Raises OSError if
    nothing is known, and ValueError if it is not in the format."""
    found = from_json(_read(folder, NAMES))
    check_type(found, {str: [[(str, str, str, str, float | int)]]})
    with suppress(OSError, ValueError):  # which may have been measured again
        evidence = read_evidence(folder)
        found[str(evidence["step"])] = names_of(evidence)
    return found


def _read(folder: Path, name: str) -> bytes:
    if (folder / FOLDER).is_symlink():
        raise OSError(0, "there is no such file")
    return read_beside(folder / FOLDER / name)
