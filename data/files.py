"""Which files of text a path names."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

import yaml

from common.errors import UserError, counted, print, printable
from common.files import read_text, real_path


def local_path(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 (raises nothing, unlike Path's own)


def is_local(path: str) -> bool:
    """Whether a path names files of this machine: one that exists, or a glob."""
    return "://" not in path and (os.path.exists(local_path(path)) or glob.has_magic(path))  # noqa: PTH110 (raises nothing)


def find_files(path: str) -> list[Path]:
    """The files at `path`, sorted: a file, a folder (all files below it that are neither hidden nor
    in a run), or a glob.

    Raises UserError, naming `data.path`, if there are none, or if they cannot be listed.
    """
    chosen = local_path(path)
    with readable(path):
        if chosen.is_file():
            return [chosen]
        found, problem = _in_folder(chosen) if chosen.is_dir() else _of_glob(chosen)
        kept = _without_runs(found, chosen)
    if not kept:
        problem += ", apart from those of runs" if found else ""
        raise UserError(f"data.path: {path} {problem}; give a file, a folder or a glob pattern")
    # Links can lead to a file again, or in circles: it counts once, under its shortest path.
    once: dict[Path, Path] = {}
    for file in sorted(kept, key=lambda file: (len(file.parts), file.as_posix())):
        once.setdefault(real_path(file), file)
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


def _in_folder(folder: Path) -> tuple[list[Path], str]:
    """The files, and what to say if there are none."""
    every = [file for file in folder.rglob("*") if file.is_file()]
    files = [
        file
        for file in every
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]
    if n_hidden := len(every) - len(files):
        print(f"note: left out {counted(n_hidden, 'hidden file')}", file=sys.stderr)
    return files, "contains no files"


def _of_glob(chosen: Path) -> tuple[list[Path], str]:
    """As `_in_folder`; names of folders that exist are no patterns, whatever they contain."""
    if chosen.exists():
        return [], "is neither a file nor a folder"
    known = Path()
    for part in chosen.parts:
        if not (known / part).is_dir():
            break
        known /= part
    rest = chosen.parts[len(known.parts) :]
    # Unlike Path.glob, this accepts absolute patterns and skips hidden files.
    names = glob.glob(str(Path(glob.escape(str(known)), *rest)), recursive=True)  # noqa: PTH207
    problem = "matches no files" if glob.has_magic(str(chosen)) else "does not exist"
    if "://" in str(chosen) or ":/" in str(chosen)[1:]:
        problem = "is a URL, which data=dataset reads"
    return [file for file in map(Path, names) if file.is_file()], problem


def _without_runs(files: Sequence[Path], chosen: Path) -> list[Path]:
    """The files but those of runs, of which a note says which they are: a run in a folder of texts
    would be trained on its own log. Files of a run that is itself chosen are kept."""
    parts = chosen.parts if chosen.is_dir() else takewhile(lambda part: part != "**", chosen.parts)
    depth = len([*parts])
    parents = {file: [p for p in file.parents if len(p.parts) >= depth] for file in files}
    runs = {parent for parent in set().union(*parents.values()) if _is_run(parent)}
    if shown := sorted(run for run in runs if runs.isdisjoint(run.parents)):
        more = f" and {len(shown) - 5:,} more" if len(shown) > 5 else ""
        names = ", ".join(map(str, shown[:5])) + more
        print(printable(f"note: left out the folders of runs: {names}"), file=sys.stderr)
    return [file for file in files if runs.isdisjoint(parents[file])]


def _is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, or of a sweep: by the model in its settings."""
    names = ["multirun.yaml"]
    if (folder / "tokenizer/tokenizer.json").is_file():
        names.append("config.yaml")
    for name in names:
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError, yaml.YAMLError):
            settings = yaml.safe_load(read_text(folder / name, 1 << 18))
            if {"n_layers", "d_model", "qk_norm"} <= set(settings["model"]):
                return True
    return False
