"""The live page of a run: `live.html` in the folder of its event files, if there is one.

The file can come from anywhere. Its scripts run in an origin of their own, which can request
nothing: neither the rest of the log, nor anything else.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from tensorboard_attention.records import is_plain

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


def has_page(folder: Path) -> bool:
    """Whether a run has a page."""
    return is_plain(folder / NAME)


def open_page(folder: Path) -> BinaryIO:
    """The page of a run. Raises OSError if there is none."""
    if not has_page(folder):
        raise OSError(0, "there is no page")
    return (folder / NAME).open("rb")
