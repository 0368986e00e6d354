"""The files of a corpus: local ones, or those of any file system that fsspec knows.

Files are found in sorted order, and read from beginning to end in memory that does not depend on
their size; those that end in `.gz` or `.zst` are decompressed, and a truncated one is an error.
Knows nothing of what the files contain.
"""

from __future__ import annotations

import glob
import gzip
import io
import json
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from common.errors import UserError, counted, installing, print, printable
from common.files import read_text, real_path
from data.decoding import BLOCK, NotText
from data.progress import Reading, Stream

COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True)
class Source:
    """A file.

    name: its path or URL. size: the bytes that are stored; None if a server does not say.
    fingerprint: changes when the file changes. files: fsspec's file system; None for a local file.
    has_ranges: whether any place can be read without what is before it.
    copy: the temporary file that this is, which is deleted with the source.
    """

    name: str
    size: int | None
    fingerprint: str
    files: Any = field(default=None, compare=False, repr=False)
    has_ranges: bool = True
    copy: Any = field(default=None, compare=False, repr=False)

    @property
    def suffixes(self) -> tuple[str, str]:
        """The suffixes of the format and of the compression; empty where there is none."""
        path = PurePosixPath(self.name.partition("?")[0] if self.files else self.name)
        compression = path.suffix.lower() if path.suffix.lower() in COMPRESSED else ""
        return (PurePosixPath(path.stem) if compression else path).suffix.lower(), compression

    @contextmanager
    def open(self, reading: Reading | None = None) -> Iterator[Stream]:
        """The stored bytes, which `reading` follows. Raises UserError if they cannot be read, or if
        a local file has changed since it was found."""
        with readable(self.name):
            self._check_unchanged()
            if self.files is None:
                stored = Path(self.name).open("rb")  # noqa: SIM115
            else:
                path = self.files._strip_protocol(self.name)
                stored = self.files.open(path, "rb", block_size=BLOCK)
            with stored, reading.follow(stored, self.size) if reading else nullcontext():
                yield stored
            self._check_unchanged()

    def _check_unchanged(self) -> None:
        if self.files is None and local_source(Path(self.name)).fingerprint != self.fingerprint:
            raise UserError(f"data.path: {self.name} changed while it was read; try again")

    def stream(self, stored: Stream) -> Stream:
        """The content, decompressed, of `stored`, which `open` has opened."""
        compression = self.suffixes[1]
        if compression == ".gz":
            return gzip.GzipFile(fileobj=stored)
        if compression == ".zst":
            import pyarrow  # unlike zstandard's own reader, it reports a truncated file

            plain = pyarrow.CompressedInputStream(pyarrow.PythonFile(stored, "r"), "zstd")
            return io.BufferedReader(plain, BLOCK)
        return stored

    @contextmanager
    def seekable(self, stored: Stream) -> Iterator[Stream]:
        """The content, decompressed, in which any place can be read: if need be, a temporary
        copy."""
        if self.has_ranges and not self.suffixes[1]:
            yield stored
        else:
            with copied(self.stream(stored)).open() as copy:
                yield copy


def find(path: str, exclude: str | None = None) -> list[Source]:
    """The files at `path`: a file, a folder (all files below it that are neither hidden nor in a
    run), a glob, or a URL of one of these. `exclude` is as in configs/data/text.yaml.

    Raises UserError, naming `data.path`, if there are none, or if they cannot be listed.
    """
    globs = [pattern.strip() for pattern in (exclude or "").split(",") if pattern.strip()]
    with readable(path):
        if is_url(path):
            return _find_remote(path, globs)
        return [local_source(file) for file in _find_local(path, globs)]


def is_url(path: str) -> bool:
    return bool(re.match(r"[a-z][a-z0-9+.-]*(::|://)", path))


def local_path(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 (raises nothing, unlike Path's own)


def local_source(path: Path) -> Source:
    about = path.stat()
    version = json.dumps([os.path.realpath(path), about.st_size, about.st_mtime_ns])
    return Source(str(path), about.st_size, version)


def copied(stream: Stream) -> Source:
    """A temporary copy of a stream."""
    copy = tempfile.NamedTemporaryFile()  # noqa: SIM115
    shutil.copyfileobj(stream, copy, BLOCK)
    copy.flush()
    return replace(local_source(Path(copy.name)), copy=copy)


def _find_local(path: str, globs: Sequence[str]) -> list[Path]:
    """The local files at `path`, sorted."""
    chosen = local_path(path)
    if chosen.is_file():
        if globs:
            raise UserError("data.exclude: has no effect on a single file; leave it out")
        return [chosen]
    folder = chosen if chosen.is_dir() else Path()
    if chosen.is_dir():
        every = [file for file in chosen.rglob("*") if file.is_file()]
        files = [
            file
            for file in every
            if not any(part.startswith(".") for part in file.relative_to(chosen).parts)
        ]
        if n_hidden := len(every) - len(files):
            print(f"note: left out {counted(n_hidden, 'hidden file')}", file=sys.stderr)
        problem = "contains no files"
    else:
        # Unlike Path.glob, this accepts absolute patterns and skips hidden files.
        names = glob.glob(_pattern(chosen), recursive=True)  # noqa: PTH207
        files = [Path(name) for name in names]
        problem = "matches no files" if glob.has_magic(path) else "does not exist"
        if chosen.exists():
            problem = "is a device"
    if found := [file for file in files if file.is_file()]:
        problem += ", apart from those of runs and those that data.exclude names"
    parents = {parent for file in found for parent in _parents(file, chosen)}
    runs = {parent for parent in parents if _is_run(parent)}
    kept = [
        file
        for file in found
        if not _is_excluded(os.path.relpath(file, folder), globs)
        and runs.isdisjoint(_parents(file, chosen))
    ]
    if not kept:
        raise UserError(
            f"data.path: {path} {problem}; give a UTF-8 text file, folder or glob pattern"
        )
    _note_left_out(sorted(run for run in runs if runs.isdisjoint(run.parents)))
    for pattern in globs:
        if not any(_is_excluded(os.path.relpath(file, folder), [pattern]) for file in found):
            print(printable(f"note: data.exclude: {pattern} matches no file"), file=sys.stderr)
    # Links can lead to a file again, or in circles: it counts once, under its shortest path.
    once: dict[Path, Path] = {}
    for file in sorted(kept, key=lambda file: (len(file.parts), file.as_posix())):
        once.setdefault(real_path(file), file)
    return sorted(once.values(), key=lambda file: file.as_posix())


def _parents(file: Path, chosen: Path) -> list[Path]:
    """The folders that lead to a file from a chosen folder, or from the first `**` of a glob."""
    parts = chosen.parts if chosen.is_dir() else takewhile(lambda part: part != "**", chosen.parts)
    depth = len([*parts])
    return [parent for parent in file.parents if len(parent.parts) >= depth]


def _pattern(chosen: Path) -> str:
    """A glob pattern in which the names of the folders that exist are literal."""
    known = Path()
    for part in chosen.parts:
        if not (known / part).is_dir():
            break
        known /= part
    return str(Path(glob.escape(str(known)), *chosen.parts[len(known.parts) :]))


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


def _note_left_out(runs: Sequence[Path]) -> None:
    if runs:
        more = f" and {len(runs) - 5:,} more" if len(runs) > 5 else ""
        names = ", ".join(map(str, runs[:5])) + more
        print(printable(f"note: left out the folders of runs: {names}"), file=sys.stderr)


def _is_excluded(path: str, globs: Sequence[str]) -> bool:
    names = (path, *Path(path).parts)
    return any(fnmatch(name, pattern) for name in names for pattern in globs)


def _find_remote(path: str, globs: Sequence[str]) -> list[Source]:
    from fsspec.core import url_to_fs

    files, root = url_to_fs(path)
    is_web = path.startswith("http")
    if re.search(r"[*\[]" if is_web else r"[*?\[]", root):  # in a URL, ? begins the query
        found = files.glob(root, detail=True)
    elif (about := files.info(root))["type"] == "directory":
        found = files.find(root, detail=True)
    else:
        found = {root: about}
    sources = []
    for name, listed in sorted(found.items()):
        relative = name.removeprefix(root).lstrip("/") or name
        is_hidden = name != root and any(part.startswith(".") for part in relative.split("/"))
        is_marker = name.endswith("/") and not is_web  # some stores have objects for folders
        if listed["type"] != "file" or is_marker or is_hidden or _is_excluded(relative, globs):
            continue
        # The links of a page have names alone.
        about = files.info(name) if is_web and listed.get("size") is None else listed
        shown = name if "://" in name else files.unstrip_protocol(name)
        version = json.dumps([shown, about], default=str, sort_keys=True)
        has_ranges = not is_web or about.get("partial", False)
        sources.append(Source(shown, about.get("size"), version, files, has_ranges))
        is_html = about.get("mimetype") == "text/html"
        if is_html and sources[-1].suffixes[0] not in (".html", ".htm", ".txt", ".md"):
            raise UserError(
                f"data.path: {shown} is a web page, and not text; give the URL of a file, or a "
                "glob pattern of the files to which a page links, such as "
                "https://host/folder/*.jsonl"
            )
    if not sources:
        raise UserError(f"data.path: {path} has no files; give a file, a folder or a glob pattern")
    return sources


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raise UserError, naming `data.path` and the file, if the block cannot read it."""
    try:
        yield
    except (UserError, NotText, AssertionError):
        raise
    except RecursionError:
        raise UserError("data.path: has too many parts; give a shorter glob pattern") from None
    except ImportError as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"data.path: {name} needs a library that is not installed ({reason}); "
            f"install it, or all that large corpora need with {installing('scale')}"
        ) from error
    except Exception as error:  # each file system of fsspec has its own
        if _is_damage(error):
            raise UserError(
                f"data.path: {name} is damaged ({_reason_of(error)}); replace it, or leave it out "
                "with data.exclude"
            ) from error
        raise UserError(
            f"data.path: {name} cannot be read ({_reason_of(error)}); "
            "give a readable file, folder, glob pattern or URL"
        ) from error


def _is_damage(error: Exception) -> bool:
    """Whether the bytes of a file are wrong, and not the access to them. Arrow raises its own
    exceptions, and OSError without a number."""
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile | UnicodeDecodeError):
        return True
    if type(error) is OSError:
        return error.errno is None
    return type(error).__module__.startswith("pyarrow")


def _reason_of(error: BaseException) -> str:
    """Why a file system refuses, in a few words."""
    if isinstance(error, FileNotFoundError) and not error.strerror:  # fsspec's: only the name
        return _reason_of(error.__cause__) if error.__cause__ else "not found"
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return text[:200] or type(error).__name__
