"""Which files a path names."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

from common.errors import UserError, print_note
from common.files import real_path


def local_path(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 (raises nothing, unlike Path's own)


def is_local(path: str) -> bool:
    """Whether a path names files of this machine: one that exists, or a glob."""
    exists = os.path.exists(local_path(path))  # noqa: PTH110 (raises nothing, unlike Path's own)
    return "://" not in path and (exists or glob.has_magic(path))


def find_files(path: str) -> list[Path]:
    """The files at `path`, sorted: a file, a folder (what `_files_below` finds), or a glob.

    Raises UserError, naming `data.path`, if there are none, or if they cannot be listed.
    """
    chosen = local_path(path)
    with readable(path):
        if chosen.is_file():
            return [chosen]
        found, left_out = _files_below(chosen) if chosen.is_dir() else _files_of_glob(chosen)
    names = ", ".join(left_out[:5]) + (f" and {len(left_out) - 5:,} more" if left_out[5:] else "")
    if not found:
        only = f" but {names} (left out)" if left_out else ""
        problem = f"matches no files{only}" if glob.has_magic(path) else "does not exist"
        if chosen.is_dir():
            problem = f"contains no files{only}"
        elif chosen.exists():
            problem = "is neither a file nor a folder"
        elif "://" in path:
            problem = "is a URL, which data=dataset reads"
        raise UserError(f"data.path: {path} {problem}; give a file, a folder or a glob pattern")
    if left_out and chosen.is_dir():
        print_note(f"note: hidden files, backups, broken links and runs are left out: {names}")
    # Links can lead to a file again, or in circles: it counts once, under its shortest path.
    found.sort(key=lambda file: (len(file.parts), file.as_posix()), reverse=True)
    once = {real_path(file): file for file in found}
    return sorted(once.values(), key=lambda file: file.as_posix())


@contextmanager
def readable(name: object) -> Iterator[None]:
    """Raise UserError, naming `data.path` and the file, if the block cannot read it."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"data.path: {name} cannot be read ({reason}); give a readable file, folder or glob "
            "pattern"
        ) from error


def _files_below(chosen: Path) -> tuple[list[Path], list[str]]:
    """The files below a folder, also behind links, but for those that lead back; and the names of
    what is left out: hidden files and folders, backups of an editor, broken links, and runs, since
    one in a folder of texts would be trained on its own log. Raises OSError for a folder that
    cannot be listed."""

    def refuse(error: OSError) -> None:
        raise error

    found, left_out = list[Path](), list[Path]()
    for name, folders, files in os.walk(chosen, onerror=refuse, followlinks=True):
        folder = Path(name)
        here = real_path(folder)
        for inner in map(folder.joinpath, [*folders]):
            is_left_out = inner.name.startswith(".") or is_run(inner)
            if is_left_out:
                left_out.append(inner)
            is_link = (target := real_path(inner)) != here / inner.name
            if is_left_out or (is_link and target in map(real_path, (folder, *folder.parents))):
                folders.remove(inner.name)
        for file in map(folder.joinpath, files):
            is_text = file.is_file() and not file.name.startswith(".") and not is_backup(file)
            (found if is_text else left_out).append(file)
    return found, sorted(path.relative_to(chosen).as_posix() for path in left_out)


def is_backup(file: PurePath) -> bool:
    """Whether an editor left a file beside a text."""
    return bool(re.fullmatch(r".*~|#.*#|.*\.bak", file.name, re.IGNORECASE | re.DOTALL))


def is_hidden(file: Path, folder: Path) -> bool:
    """Whether a file below a folder, or a folder in between, is hidden."""
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _files_of_glob(chosen: Path) -> tuple[list[Path], list[str]]:
    """The files that a pattern matches, without backups of an editor unless they are asked for; and
    the names of these. Names of folders that exist are no patterns, whatever they contain."""
    known = Path()
    for part in chosen.parts:
        if not (known / part).is_dir():
            break
        known /= part
    rest = chosen.parts[len(known.parts) :]
    # Unlike Path.glob, this accepts absolute patterns and skips hidden files.
    names = glob.glob(str(Path(glob.escape(str(known)), *rest)), recursive=True)  # noqa: PTH207
    matched = [file for file in map(Path, names) if file.is_file()]
    backups = {file for file in matched if is_backup(file) and not is_backup(chosen)}
    return [file for file in matched if file not in backups], sorted(map(str, backups))


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return all((folder / name).is_file() for name in ("config.yaml", "tokenizer/tokenizer.json"))
