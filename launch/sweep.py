"""Before and after a sweep, whether -m or the file of an experiment asks for it: the names of its
folders, and the table of compare.py, or nothing on disk if it was refused."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict, read_write

from common.errors import UserError, printable
from common.files import folders_to
from common.signals import FirstSignal
from launch.mistakes import one_line_errors
from launch.quoting import if_sweep

SETTINGS = "multirun.yaml"
MAX_NAME = 120  # bytes of the settings in the name of a folder; file systems take 255 in all


class Sweep(Callback):
    """Hydra makes it, as `launch.cli` asks. It would take an exception for a warning."""

    # What removes, if an exception ends it, what Hydra made for runs that did not start.
    undoing = ExitStack()

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
            Sweep.undoing.enter_context(folders_to(folder / SETTINGS))
            Sweep.undoing.enter_context(unchanged(folder))

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
def unchanged(folder: Path) -> Iterator[None]:
    """If the block raises before a run has started in the folder of a sweep, leave what was there:
    other folders, and Hydra's file."""
    file, before = folder / SETTINGS, {*folder.iterdir()}
    settings = file.read_bytes() if file in before else None
    try:
        yield
    except BaseException:
        for path in {*folder.iterdir()} - before - {file}:
            with suppress(OSError):  # it has a run
                path.rmdir()
        if {*folder.iterdir()} <= before | {file}:
            file.unlink(missing_ok=True)
            if settings is not None:
                file.write_bytes(settings)
        raise
