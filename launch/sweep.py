"""Before and after a sweep, whether -m or the file of an experiment asks for it: the names of its
folders, and the table of compare.py, or nothing on disk if it was refused."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict, read_write

from common.errors import UserError, printable
from common.signals import FirstSignal
from launch.mistakes import one_line_errors
from launch.quoting import if_sweep

SETTINGS = "multirun.yaml"
MAX_NAME = 120  # bytes of the settings in the name of a folder; file systems take 255 in all


class Begun(NamedTuple):
    """A sweep's folder, and how it was before: which folders on the way to it were missing, the
    innermost first, what was in it, and Hydra's file among that."""

    folder: Path
    missing: list[Path]
    before: set[Path]
    settings: bytes | None


class Sweep(Callback):
    """Hydra makes it, as `launch.cli` asks. It would take an exception for a warning."""

    begun: Begun | None = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        with one_line_errors():
            if config.hydra.job.config_name != "train" or "LOCAL_RANK" in os.environ:
                raise UserError("-m: only train.py can sweep, without torchrun")
            interrupt_on_signals()
            params = config.hydra.sweeper.get("params") or {}
            swept = [f"{name}={values}" for name, values in params.items()]
            left_out = ",".join(not_in_names([*swept, *if_sweep]))
            overrides = config.hydra.overrides
            with read_write(overrides), open_dict(overrides):
                overrides.task = if_sweep
                overrides.hydra.append(
                    f"hydra.job.config.override_dirname.exclude_keys=[{left_out}]"
                )
            folder = Path(config.hydra.sweep.dir)
            missing = [path for path in (folder, *folder.parents) if not path.exists()]
            file, before = folder / SETTINGS, set() if missing else {*folder.iterdir()}
            settings = file.read_bytes() if file in before else None
            Sweep.begun = Begun(folder, missing, before, settings)

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        # Every script imports this file: Hydra makes the callback.
        from store.comparison import compare, group, notes, summary_lines, target_loss
        from store.results import read_finished

        folder = Path(config.hydra.sweep.dir)
        if any(folder.rglob("summary.json")):
            rows = read_finished([folder])
            groups = group(rows)
            lines = summary_lines(groups, compare(groups), target_loss(groups))
            lines += [f"note: {note}" for note in notes(rows)]
            print("\n".join(["", *map(printable, lines)]))


def interrupt_on_signals() -> None:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt, so that a launcher ends its workers, too."""

    def interrupt(_number: int) -> NoReturn:
        raise KeyboardInterrupt

    FirstSignal((signal.SIGINT, signal.SIGTERM), interrupt)


def not_in_names(overrides: Sequence[str]) -> Iterator[str]:
    """The settings of a sweep that the names of its folders leave out: those that are the same in
    all runs, those whose values no folder can be called, and those for which there is no room."""
    parser, room = OverridesParser.create(GlobalHydra.instance().config_loader()), MAX_NAME
    for override in parser.parse_overrides([*overrides]):
        name = override.get_key_element()
        is_swept = override.is_sweep_override() and override.is_discrete_sweep()
        values = {*override.sweep_string_iterator()} if is_swept else {""}
        length = max(len(f"{name}={value},".encode()) for value in values)
        is_name = all(re.fullmatch(r"[\w.,=+()' -]+", value) for value in values)
        if len(values) > 1 and is_name and length <= room:
            room -= length
        else:
            yield name.lstrip("+")


@contextmanager
def leaving_nothing() -> Iterator[None]:
    """If the block, which may begin a sweep, raises, remove the empty folders and the file that
    Hydra made for runs that did not start."""
    Sweep.begun = None
    try:
        yield
    except BaseException:
        if begun := Sweep.begun:
            with suppress(OSError):
                _clear(begun)
        raise


def _clear(begun: Begun) -> None:
    file = begun.folder / SETTINGS
    started = False
    for path in {*begun.folder.iterdir()} - begun.before - {file}:
        try:
            path.rmdir()
        except OSError:
            started = True
    if started:
        return
    if begun.settings is None:
        file.unlink(missing_ok=True)
    else:
        file.write_bytes(begun.settings)
    for path in begun.missing:
        path.rmdir()
