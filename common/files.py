"""Reading files that may be anything; checksums; replacing files; new files and folders.

After a kill or a loss of power there is either the old content or the new one. What a killed
process left under a temporary name is deleted when a run or a cache is opened for writing
(`clean`), and at the next write to the same folder. All functions raise OSError if the disk
refuses.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from common.errors import UserError

SUMS = "SHA256SUMS"
TEMPORARY = re.compile(r"\.glassgpt-[0-9a-f]{8}-[0-9]{1,9}-[0-9a-f]{16}")  # host, process, random
ABANDONED = 24 * 3600.0  # seconds
# Seconds between tries: Windows moves and deletes no file that another process has open, such as
# TensorBoard or a virus scanner, which is soon done with it.
WAITS = (0.05, 0.1, 0.2, 0.4, 0.8) if os.name == "nt" else ()


def _host() -> str:
    """Eight digits that processes share if they see each other's process ids: a hash of the host,
    and on Linux also of the PID namespace, such as that of a container."""
    parts = [socket.gethostname()]
    with suppress(OSError):  # other systems lack it
        parts.append(str(Path("/proc/self/ns/pid").readlink()))  # "pid:[4026531836]"
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:8]


HOST, TOKEN = _host(), secrets.token_hex(4)  # the latter is this process's


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading. Raises OSError for anything but a regular file: a named pipe would
    wait for a writer, and a device may never end."""
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # the latter is Windows'
    descriptor = os.open(path, os.O_RDONLY | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_text(path: Path, most: int = 1 << 20) -> str:
    """The UTF-8 text of a regular file. Raises ValueError for other bytes, or more than `most`."""
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"more than {most} bytes")
    return data.decode()


def read_json(path: Path, most: int = 1 << 20) -> Any:
    """The value in a JSON file. Raises as `read_text` does, and ValueError for damaged JSON."""
    try:
        return json.loads(read_text(path, most))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_value(path: Path, name: str) -> Any:
    """The value of a name in a JSON file; None if the file has none, or cannot be read."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return read_json(path)[name]
    return None


def sha256(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_sums(folder: Path, names: Iterable[str]) -> None:
    """Write the SHA-256 of files in a folder to SHA256SUMS, as `sha256sum --check` reads it."""
    sums = "".join(f"{sha256(folder / name)}  {name}\n" for name in names)
    (folder / SUMS).write_text(sums, encoding="utf-8", newline="\n")


def find_damage(folder: Path, names: Collection[str]) -> str | None:
    """What is wrong with files whose checksums `write_sums` wrote, or None."""
    damaged = f"{folder / SUMS} is missing or damaged"
    try:
        lines = (line.partition("  ") for line in read_text(folder / SUMS).splitlines())
    except (OSError, ValueError):
        return damaged
    expected = {name: digest for digest, _, name in lines}
    return find_change(folder, expected) if expected.keys() == set(names) else damaged


def find_change(folder: Path, sums: Mapping[str, str]) -> str | None:
    """What is wrong with files in a folder whose SHA-256 are known by name, or None."""
    for name, digest in sums.items():
        path = folder / name
        if not path.is_file():
            return f"{path} is missing, or is not a file"
        try:
            if sha256(path) != digest:
                return f"{path} is damaged (its checksum differs)"
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
    return None


def fsync(path: Path) -> None:
    """Flush a file to the disk, or a folder where its file system can: shared folders of virtual
    machines and some network file systems refuse it."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":  # Windows opens no folders, and flushes only what is writable
        return
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not is_folder or error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def patiently(change: Callable[..., object], *arguments: object) -> None:
    """Call what moves or deletes a file, again after each of WAITS while that is refused."""
    for seconds in WAITS:
        try:
            change(*arguments)
        except PermissionError:
            time.sleep(seconds)
        else:
            return
    change(*arguments)


def replace_text(path: Path, text: str) -> None:
    """Write `text` to a file as UTF-8. Raises OSError if a folder is in its place."""
    replace_lines(path, [text.encode()])


def replace_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write lines to a file; they may be read from it meanwhile. Raises OSError if a folder is in
    its place."""
    with _temporary(path) as temporary:
        with temporary.open("wb") as file:
            file.writelines(lines)
        fsync(temporary)
        patiently(temporary.replace, path)
    fsync(path.parent)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a new temporary name beside `path`, and move the file that the block writes there to
    `path` at the end. Folders on the way are created.

    Raises FileExistsError if there is something at `path` at the end. If the block raises, nothing
    is left.
    """
    with folders_to(path), _temporary(path) as temporary:
        yield temporary
        fsync(temporary)
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        patiently(temporary.rename, path)
        fsync(path.parent)


def check_creatable(setting: str, path: Path) -> None:
    """Raise UserError, naming `setting`, if nothing can be created at `path`, which is tried in the
    nearest folder on the way. Some file systems refuse what permissions allow."""
    folder = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    probe = _beside(folder / path.name)
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise UserError(
            f"{setting}: {folder} is not a writable folder ({error.strerror}); choose another"
        ) from error


@contextmanager
def folders_to(path: Path) -> Iterator[None]:
    """Create the folders on the way to `path`; if the block raises, remove those that are empty."""
    missing = [parent for parent in path.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for parent in missing:
            with suppress(OSError):
                parent.rmdir()
        raise


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a new temporary folder beside `folder`, and rename it to `folder` at the end. Folders
    on the way are created.

    Raises FileExistsError if there is something at `folder` at the end, other than an empty folder.
    If the block raises, everything that was created is removed.
    """
    with folders_to(folder), _temporary(folder) as temporary:
        temporary.mkdir()
        yield temporary
        for path in (*temporary.iterdir(), temporary):
            fsync(path)
        with suppress(OSError):
            folder.rmdir()  # if it is empty: on Windows, a rename does not replace it
        try:
            patiently(temporary.rename, folder)
        except OSError:
            if os.path.lexists(folder):
                raise FileExistsError(
                    errno.EEXIST, os.strerror(errno.EEXIST), str(folder)
                ) from None
            raise
        fsync(folder.parent)


def remove(path: Path) -> None:
    """Delete a folder, which a concurrent reader finds whole or not at all, or a file or link.
    Errors are ignored."""
    hidden = _beside(path)
    with suppress(OSError):
        patiently(path.rename, hidden)
    _delete(hidden)


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Let an OSError of the block name `path` if it names no file, as those of writing do, or a
    temporary one, of which the user knows nothing."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(path)
        elif temporary and isinstance(error.filename, str | bytes):
            error.filename = os.fsdecode(error.filename).replace(temporary.name, path.name)
        raise


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a new hidden name beside `path`; if the block raises, delete what has this name."""
    temporary = _beside(path)
    with naming(path, temporary):
        try:
            yield temporary
        except BaseException:
            _delete(temporary)
            raise


def file_name(text: str) -> str:
    """A name for a file or folder that shows a text, as far as names can."""
    return re.sub(r"[^\w.,=+-]+", "_", text, flags=re.ASCII).lstrip(".")[:80] or "_"


def real_path(path: Path) -> Path:
    """The path without symbolic links. `Path.resolve` raises for a loop of them."""
    return Path(os.path.realpath(path))


def _beside(path: Path) -> Path:
    """A temporary name in the same folder, so that renaming stays within one file system."""
    clean(path.parent)
    return path.with_name(f".glassgpt-{HOST}-{os.getpid()}-{TOKEN}{secrets.token_hex(4)}")


def clean(folder: Path, pattern: str = "*", seconds: float = ABANDONED) -> None:
    """Delete what killed processes left in a folder, or with the pattern `**/*` also below it,
    under temporary names. A process on another host, or in another container, is taken for gone if
    it has changed nothing for `seconds`."""
    with suppress(OSError):
        for entry in [*folder.glob(pattern)]:
            with suppress(OSError):  # another process deletes it
                if TEMPORARY.fullmatch(entry.name) and _is_abandoned(entry, seconds):
                    _delete(entry)


def _is_abandoned(path: Path, seconds: float) -> bool:
    """Whether the process that made a temporary file or folder is gone. Raises OSError if the file
    is deleted meanwhile."""
    _, host, process, token = path.name.split("-")
    if host == HOST and int(process) == os.getpid():
        return not token.startswith(TOKEN)  # it was an earlier process with the same number
    if host == HOST and os.name != "nt":  # on Windows, os.kill would end the process
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # it is another user's
            pass
        return False
    changed = max(entry.lstat().st_mtime for entry in (path, *path.rglob("*")))
    return changed < time.time() - seconds
