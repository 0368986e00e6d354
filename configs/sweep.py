"""The end of a sweep (-m): the table of compare.py, or nothing on disk if it was refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from common.errors import print, printable
from inference.comparison import compare, group, notes, summary_lines, target_loss
from inference.results import read_finished

SETTINGS = "multirun.yaml"


class Begun(NamedTuple):
    """What was there before a sweep: folders on the way to its own, the innermost first, and
    Hydra's file in it."""

    folder: Path
    missing: list[Path]
    settings: bytes | None


class PrintTable(Callback):
    """Hydra makes it, as `configs.cli` asks."""

    begun: Begun | None = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        file = folder / SETTINGS
        PrintTable.begun = Begun(folder, missing, file.read_bytes() if file.is_file() else None)

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        if any(folder.rglob("summary.json")):
            rows = read_finished([folder])
            groups = group(rows)
            lines = summary_lines(groups, compare(groups), target_loss(groups))
            lines += [f"note: {note}" for note in notes(rows)]
            print("\n".join(["", *map(printable, lines)]))


@contextmanager
def leaving_nothing() -> Iterator[None]:
    """If the block, which may begin a sweep, raises, remove the empty folders and the file that
    Hydra made for runs that did not start."""
    PrintTable.begun = None
    try:
        yield
    except BaseException:
        if begun := PrintTable.begun:
            with suppress(OSError):
                _clear(begun)
        raise


def _clear(begun: Begun) -> None:
    for path in begun.folder.iterdir():
        with suppress(OSError):  # it is no folder, or not empty
            path.rmdir()
    file = begun.folder / SETTINGS
    if begun.settings is not None:
        file.write_bytes(begun.settings)
    elif [path.name for path in begun.folder.iterdir()] == [SETTINGS]:
        file.unlink()
    for path in begun.missing:
        path.rmdir()
