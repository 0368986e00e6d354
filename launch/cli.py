"""The start of a script: Hydra composes its settings, and a user's mistake ends in one line.

A mistake (`UserError`, or settings that cannot be composed) and what the system refuses (`OSError`
with a number) are printed on standard error without a traceback, and the exit status is 2. Any
other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import io
import os
import platform
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import wraps
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from common.errors import UserError
from common.settings import Values
from common.startup import GC_THRESHOLD
from launch.mistakes import one_line_errors
from launch.quoting import CONFIGS, ROOT, read_arguments, split
from launch.sweep import Sweep

# Hydra 1.3 asks which version's defaults are meant; 1.4 warns of an answer, and of targets that are
# not listed: ours, and those of launchers.
IS_1_4 = "execution_whitelist" in inspect.signature(hydra.main).parameters
VERSION: dict[str, Any] = {} if IS_1_4 else {"version_base": "1.3"}
TRUST: dict[str, Any] = {
    "execution_whitelist": ["launch.sweep.Sweep", "hydra.*", "hydra_plugins.*"]
}


def run_script(name: str, main: Callable[[Values], object], kind: type) -> None:
    """Compose configs/<name>.yaml with the command line's overrides, and call `main` with the plain
    values, which `common.settings.build` turns into a dataclass.

    kind: that dataclass. Its types tell here which values are texts, and which settings exist."""
    # Freeze imported objects: the collector would scan them at exit for 0.4 s.
    # Once: a process that runs several scripts, as tests do, would keep what the first ones leave.
    if not gc.get_freeze_count():
        gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    # Otherwise Hydra prints its own summary of an exception and hides the rest.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # The processes that some launchers start (submitit) import the modules of the project.
    paths = [str(ROOT), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

    @wraps(main)
    def job(config: DictConfig) -> object:
        accept_any_text()  # a launcher may have started another process
        # Also caught inside the job: Hydra adds its own lines to exceptions that leave it.
        with one_line_errors(name, kind):
            return main(plain_values(config))

    with one_line_errors(name, kind):
        accept_any_text()
        given, _ = split(sys.argv[1:])
        if "version" in given:
            print(version())
            return
        sys.argv[1:] = read_arguments(sys.argv[1:], name, kind)
        accept_any_help()
        run = hydra.main(str(CONFIGS), name, **(TRUST if IS_1_4 else VERSION))
        if "help" not in given:
            with Sweep.undoing:
                run(job)()
            return
        from launch.help import explain  # which a run does not need

        with redirect_stdout(io.StringIO()) as text, suppress(SystemExit):
            run(job)()
        print(explain(text.getvalue(), name))


def plain_values(config: DictConfig) -> Values:
    """What Hydra has composed, without interpolations. Raises UserError for an experiment whose
    settings Hydra would not take for those of the script."""
    container: Any = OmegaConf.to_container(config, resolve=True)
    if "experiment" in container:
        raise UserError(
            "experiment: the first line of its file must be: # @package _global_, without a byte "
            "order mark before it"
        )
    return container


def accept_any_help() -> None:
    """Let parsers have a help that is not a string, as one option of Hydra 1.3's does.

    Since Python 3.14, `add_argument` formats the help and raises "badly formed help string". Can go
    when Hydra gives a string: https://github.com/facebookresearch/hydra/issues/3121.
    """

    def add_argument(self: Any, *names: Any, help: Any = None, **options: Any) -> argparse.Action:
        if isinstance(help, str):  # some actions require one
            options["help"] = help
        action = super(argparse.ArgumentParser, self).add_argument(*names, **options)
        action.help = help or action.help
        return action

    argparse.ArgumentParser.add_argument = add_argument  # type: ignore[method-assign]


def accept_any_text() -> None:
    """Print characters that the terminal's encoding lacks as escapes, such as \\xe4."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # tests and notebooks have others
            stream.reconfigure(errors="backslashreplace")


def version() -> str:
    """The versions of glassgpt, torch and Python, in one line."""
    from importlib import metadata

    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("glassgpt", "torch"))
    return f"{versions}, Python {platform.python_version()}"
