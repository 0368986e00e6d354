"""Which code trains a run: the commit of this clone, and what its Python files contain."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import torch

from common.errors import UserError

EXPECTED = "GLASSGPT_CODE"  # a checksum, which verdict.py gives to train.py
ROOT = Path(__file__).resolve().parent.parent
# Folders whose files train nothing, beside hidden ones and virtual environments.
APART = ("tests", "docs", "benchmarks", "findings", "notebooks", "runs", "site", "build")


def code_sha256() -> str:
    """A checksum of the version of torch and of the names and contents of the Python files of this
    clone, without those of tests and documentation: equal for equal code, with git or without. It
    does not follow links to folders."""
    digest = hashlib.sha256(torch.__version__.encode())
    for folder, below, names in os.walk(ROOT):
        here = Path(folder)
        below[:] = sorted(
            name
            for name in below
            if name not in APART and name[0] != "." and not (here / name / "pyvenv.cfg").exists()
        )
        # Not those that hidden files of editors are, such as links to nowhere.
        for name in sorted(name for name in names if re.fullmatch(r"[^.].*\.py", name)):
            digest.update(os.fsencode((here / name).relative_to(ROOT).as_posix()) + b"\0")
            with suppress(OSError):  # it cannot be imported, either
                digest.update(hashlib.sha256((here / name).read_bytes()).digest())
    return digest.hexdigest()


IMPORTED = code_sha256()  # at the import of this file; the files can change while a process runs


def check_code() -> None:
    """Raise UserError if verdict.py, which has started this process, began with other code than is
    imported by now."""
    expected = os.environ.get(EXPECTED)
    if expected is not None and {IMPORTED, code_sha256()} != {expected}:
        raise UserError(
            "verdict.py: the code has changed since this verdict began; run the command again, for "
            "a verdict on the code as it is now"
        )


def code_version() -> str:
    """code.json of a run: a checksum of the files; and the commit of this clone, and whether its
    files are as committed, but not without git, or for a copy of the files that is no clone."""
    found: dict[str, object] = {"sha256": IMPORTED}
    try:
        commit, *top = _git("rev-parse", "HEAD", "--show-toplevel").splitlines()
        if top and Path(top[0]).resolve() == ROOT:
            is_clean = not _git("status", "--porcelain", "--untracked-files=no")
            found = {"commit": commit, "clean": is_clean, **found}
    except (OSError, ValueError, subprocess.SubprocessError):
        pass
    return json.dumps(found) + "\n"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, encoding="utf-8", timeout=10, check=True
    )
    return done.stdout
