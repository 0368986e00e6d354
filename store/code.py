"""Which code trains a run: the commit of this clone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def code_version() -> str | None:
    """code.json of a run: the commit of this clone, and whether its files are as committed; None
    without git, or for a copy of the files that is no clone."""
    try:
        commit, *top = _git("rev-parse", "HEAD", "--show-toplevel").splitlines()
        if not top or Path(top[0]).resolve() != ROOT:
            return None
        is_clean = not _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return json.dumps({"commit": commit, "clean": is_clean}) + "\n"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, encoding="utf-8", timeout=10, check=True
    )
    return done.stdout
