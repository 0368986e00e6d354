"""The live page of a run: `live.html` in the folder of its event files, if there is one.

The file can come from anywhere. Its scripts run in an origin of their own, which can request
nothing: neither the rest of the log, nor anything else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from tensorboard_attention.limits import PAGE_BYTES
from tensorboard_attention.records import open_regular

NAME = "live.html"
HEADERS = {
    "Content-Security-Policy": (
        "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
        "worker-src blob:; style-src 'unsafe-inline'; img-src blob: data:; base-uri 'none'; "
        "form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def find_pages(folders: Iterable[tuple[str, Path]]) -> list[str]:
    """The runs, given with their folders, that have a page."""
    return [run for run, folder in folders if _is_page(folder / NAME)]


def read_page(folder: Path) -> bytes:
    """The page of a run. Raises OSError if there is none, or no file that can be one."""
    path = folder / NAME
    if not _is_page(path):
        raise OSError(0, "there is no page")
    about = path.lstat()
    with open_regular(path) as file:
        if not os.path.samestat(about, os.fstat(file.fileno())):
            raise OSError(0, "it was replaced by a link meanwhile")
        data = file.read(PAGE_BYTES + 1)
    if len(data) > PAGE_BYTES:
        raise OSError(0, "it is too large")
    return data


def _is_page(path: Path) -> bool:
    """Whether it is a regular file, and no link, of at most PAGE_BYTES."""
    try:
        about = path.lstat()
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(about.st_mode) and about.st_size <= PAGE_BYTES
