"""Which files a path names."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from common.errors import UserError, pluralize, print_note
from common.files import real_path

# What editors leave beside a text.
BACKUP = re.compile(r".*~|#.*#|.*\.bak", re.IGNORECASE | re.DOTALL)


def local_path(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 (raises nothing, unlike Path's own)


def is_local(path: str) -> bool:
    """Whether a path names files of this machine: one that exists, or a glob."""
    exists = os.path.exists(local_path(path))  # noqa: PTH110 (raises nothing, unlike Path's own)
    return "://" not in path and (exists or glob.has_magic(path))


def find_files(path: str) -> list[Path]:
    """The files at `path`, sorted: a file, a folder (all files below it that are neither hidden nor
    backups of an editor nor in a run), or a glob.

    Raises UserError, naming `data.path`, if there are none, or if they cannot be listed.
    """
    chosen = local_path(path)
    with readable(path):
        if chosen.is_file():
            return [chosen]
        found, left_out = _files_below(chosen) if chosen.is_dir() else _files_of_glob(chosen)
    if not found:
        only = f" but {', '.join(left_out)}, which are left out" if left_out else ""
        problem = f"matches no files{only}" if glob.has_magic(path) else "does not exist"
        if chosen.is_dir():
            problem = f"contains no files{only}"
        elif chosen.exists():
            problem = "is neither a file nor a folder"
        elif "://" in path:
            problem = "is a URL, which data=dataset reads"
        raise UserError(f"data.path: {path} {problem}; give a file, a folder or a glob pattern")
    if left_out and chosen.is_dir():
        print_note(f"note: left out {', '.join(left_out)}")
    # Links can lead to a file again, or in circles: it counts once, under its shortest path.
    found.sort(key=lambda file: (len(file.parts), file.as_posix()), reverse=True)
    once = {real_path(file): file for file in found}
    return sorted(once.values(), key=lambda file: file.as_posix())


@contextmanager
def readable(name: object) -> Iterator[None]:
    """Raise UserError, naming `data.path` and the file, if the block cannot read it."""
    try:
        yield
    except RecursionError:
        raise UserError("data.path: has too many parts; give a shorter glob pattern") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"data.path: {name} cannot be read ({reason}); give a readable file, folder or glob "
            "pattern"
        ) from error


def _files_below(chosen: Path) -> tuple[list[Path], list[str]]:
    """The files below a folder, and what is left out. Those of runs are: a run in a folder of texts
    would be trained on its own log."""
    below = [*_below(chosen)]
    runs = {folder for folder in below if is_run(folder)}
    found, left_out = _divided(
        (file for file in below if file.is_file() and runs.isdisjoint(file.parents)), chosen
    )
    broken = sum(file.is_symlink() and not file.exists() for file in below)
    left_out += [pluralize(broken, "broken link")] if broken else []
    left_out += [f"the run {run}" for run in sorted(runs)[:5]]
    left_out += [f"{len(runs) - 5:,} more"] if len(runs) > 5 else []
    return found, left_out


def _below(chosen: Path) -> Iterator[Path]:
    """All files and folders below a folder, also behind links, but for those that lead back.
    Raises OSError for a folder that cannot be listed, unless it is hidden."""

    def check(error: OSError) -> None:
        if not is_hidden(Path(error.filename), chosen):
            raise error

    for name, folders, files in os.walk(chosen, onerror=check, followlinks=True):
        folder = Path(name)
        here = real_path(folder)
        folders[:] = [
            each
            for each in folders
            if (target := real_path(folder / each)) == here / each  # no link
            or target not in map(real_path, (folder, *folder.parents))
        ]
        yield from (folder / each for each in (*folders, *files))


def _divided(files: Iterable[Path], folder: Path) -> tuple[list[Path], list[str]]:
    """The files in a folder that are neither hidden nor backups, and what is left out."""
    found, hidden, backups = list[Path](), 0, list[str]()
    for file in files:
        if is_hidden(file, folder):
            hidden += 1
        elif BACKUP.fullmatch(file.name):
            backups.append(file.name)
        else:
            found.append(file)
    left_out = [pluralize(hidden, "hidden file")] if hidden else []
    if backups:
        names = ", ".join([*sorted(backups)[:5], *(["..."] if len(backups) > 5 else [])])
        left_out.append(f"{pluralize(len(backups), 'backup')} of an editor ({names})")
    return found, left_out


def is_hidden(file: Path, folder: Path) -> bool:
    """Whether a file below a folder, or a folder in between, is hidden."""
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _files_of_glob(chosen: Path) -> tuple[list[Path], list[str]]:
    """The files that a pattern matches, and what is left out. Names of folders that exist are no
    patterns, whatever they contain."""
    known = Path()
    for part in chosen.parts:
        if not (known / part).is_dir():
            break
        known /= part
    rest = chosen.parts[len(known.parts) :]
    # Unlike Path.glob, this accepts absolute patterns and skips hidden files. Backups of an editor
    # are skipped, too, unless they are asked for.
    names = glob.glob(str(Path(glob.escape(str(known)), *rest)), recursive=True)  # noqa: PTH207
    asked = bool(BACKUP.fullmatch(chosen.name))
    matched = (file for file in map(Path, names) if file.is_file())
    found = [file for file in matched if asked or not BACKUP.fullmatch(file.name)]
    if found or not rest:
        return found, []
    with suppress(ValueError):  # a pattern that only `glob` accepts
        matched = (file for file in known.glob(str(Path(*rest))) if file.is_file())
        return [], _divided(matched, known)[1]
    return [], []


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return all((folder / name).is_file() for name in ("config.yaml", "tokenizer/tokenizer.json"))
