"""Replacing files: the old content or the new one, and nothing left behind."""

from __future__ import annotations

import errno
import os
import resource
import stat
import sys
import time
from collections.abc import Callable
from functools import partial, partialmethod
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

import common.files
from common.files import new_file, new_folder, replace_text


def write_file(path: Path) -> None:
    with new_file(path) as temporary:
        temporary.write_text("new" * 9)


def write_folder(path: Path, name: str = "a") -> None:
    with new_folder(path) as temporary:
        (temporary / name).write_text("new" * 9)


def test_a_file_that_another_process_soon_closes_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where an open file cannot be replaced. If that takes long, nothing changes."""
    path, replace, refusals = tmp_path / "file", Path.replace, [1, 2]
    replace_text(path, "old")

    def refuse(source: Path, target: Path) -> Path:
        if refusals:
            raise PermissionError(refusals.pop())
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(common.files, "WAITS", (0.0, 0.0))
    replace_text(path, "é\r\n")
    refusals += [1, 2, 3]
    with pytest.raises(PermissionError):
        replace_text(path, "newer")
    assert path.read_bytes() == "é\r\n".encode() and [*tmp_path.iterdir()] == [path]


def test_a_refusal_names_the_file_and_not_a_temporary_one(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))  # stands for a full disk
    try:
        for write, named in (
            (partial(replace_text, text="new" * 9), "file"),
            (write_file, "file"),
            (write_folder, "folder"),
            (partial(write_folder, name="no/file"), "folder/no/file"),
        ):
            with pytest.raises(OSError) as refused:
                write(tmp_path / named.partition("/")[0])
            assert refused.value.filename == str(tmp_path / named)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError) as refused:
        replace_text(tmp_path / "file", "")
    assert refused.value.filename == str(tmp_path / "file")


def test_what_is_new_appears_complete_or_not_at_all_and_replaces_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "deep/folder"
    with pytest.raises(ZeroDivisionError), new_folder(folder) as temporary:
        (temporary / "a").touch()
        assert not folder.exists()
        1 / 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []
    folder.mkdir(parents=True)  # one that is empty does not matter
    write_folder(folder)
    (folder / "a").write_text("old")
    for write, path in ((write_folder, folder), (write_file, folder / "a")):
        with pytest.raises(FileExistsError):
            write(path)
    assert [*folder.parent.rglob("*")] == [folder, folder / "a"]
    assert (folder / "a").read_text() == "old"


def test_a_folder_is_flushed_where_its_file_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        if refused(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    number, refused = errno.EINVAL, stat.S_ISDIR
    replace_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"
    number = errno.ENOSPC
    with pytest.raises(OSError, match="space"):
        replace_text(tmp_path / "a.txt", "newer")
    number, refused = errno.EINVAL, stat.S_ISREG
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        replace_text(tmp_path / "a.txt", "newer")
    assert (tmp_path / "a.txt").read_text() == "newer", "after the folder was refused"


@pytest.mark.parametrize("write", [partial(replace_text, text="new"), write_file, write_folder])
def test_a_loss_of_power_finds_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], object]
) -> None:
    """Everything is flushed before it is moved into place, and the folder that receives it
    afterwards."""
    flushed: list[int] = []
    moved: list[Path] = []
    waiting: set[int] = set()  # folders whose new entries are not flushed yet

    def flush(descriptor: int) -> None:
        flushed.append(os.fstat(descriptor).st_ino)
        waiting.discard(flushed[-1])
        sync(descriptor)

    def move(source: Path, target: Path, how: Callable[[Path, Path], object]) -> object:
        for each in (source, *source.rglob("*")):
            assert each.stat().st_ino in flushed, f"{each} is moved before it is flushed"
        moved.append(source)
        result = how(source, target)
        waiting.add(target.parent.stat().st_ino)
        return result

    sync = os.fsync
    monkeypatch.setattr(os, "fsync", flush)
    for name in ("rename", "replace"):
        monkeypatch.setattr(Path, name, partialmethod(move, how=getattr(Path, name)))
    write(tmp_path / "path")
    assert moved and not waiting


WRITE = """if True:
    import sys
    from pathlib import Path
    from common.files import new_file, new_folder
    path = Path(sys.argv[1])
    with new_file(path / "file") as file, new_folder(path / "folder") as folder:
        file.touch()
        (folder / "part").touch()
        print("writing", flush=True)
        sys.stdin.read()
"""


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    """But nothing that is a user's, or that a process still writes."""
    for name in (".glassgpt-mine", "glassgpt-00000000-1-0000000000000000"):
        (tmp_path / name).mkdir()
    for name, seconds in (("0" * 8, 90_000), ("1" * 8, 60)):  # another machine's
        left = tmp_path / f".glassgpt-{name}-1-0000000000000000"
        left.mkdir()
        (left / "part").touch()
        for path in (left, left / "part"):
            os.utime(path, 2 * (time.time() - seconds,))
        os.utime(left, (0, 0))
    others = {*tmp_path.iterdir()} - {tmp_path / f".glassgpt-{'0' * 8}-1-0000000000000000"}
    command = [sys.executable, "-c", WRITE, str(tmp_path)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "writing\n"
        with new_file(tmp_path / "own") as own:
            own.touch()
            replace_text(tmp_path / "text", "a")
            assert len({*tmp_path.iterdir()} - others) == 4  # two that it writes, own and text
        process.kill()
    assert len({*tmp_path.iterdir()} - others) == 4
    replace_text(tmp_path / "text", "b")
    assert {*tmp_path.iterdir()} - others == {tmp_path / "own", tmp_path / "text"}
    assert others <= {*tmp_path.iterdir()}
