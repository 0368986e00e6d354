"""Before and after a sweep, whether -m or the file of an experiment asks for it: the names of its
folders, and the table of compare.py, or nothing on disk if it was refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from common.errors import UserError, printable
from common.files import file_name, folders_to
from common.signals import FirstSignal
from launch.mistakes import one_line_errors

SETTINGS = "multirun.yaml"
# In configs/common.yaml: the name of a run's folder, from its settings as Hydra writes them.
OmegaConf.register_new_resolver(
    "folder_name", lambda text: file_name(text.replace("'", "")), replace=True
)


class Sweep(Callback):
    """Hydra makes it, as `launch.cli` asks. It would take an exception for a warning."""

    # What removes, if an exception ends it, what Hydra made for runs that did not start.
    undoing = ExitStack()

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        with one_line_errors():
            if config.hydra.job.config_name != "train" or "LOCAL_RANK" in os.environ:
                raise UserError("-m: only train.py can sweep, without torchrun")
            interrupt_on_signals()
            overrides = config.hydra.overrides
            parser = OverridesParser.create(GlobalHydra.instance().config_loader())
            task: Any = OmegaConf.to_container(overrides.task, resolve=False)
            given = parser.parse_overrides(task)
            same = [each.key_or_group for each in given if not each.is_sweep_override()]
            with read_write(overrides), open_dict(overrides):
                # The names of folders have the settings that differ.
                overrides.hydra.append(
                    f"hydra.job.config.override_dirname.exclude_keys=[{','.join(same)}]"
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
