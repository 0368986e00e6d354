"""The start of a script: Hydra composes its settings, and a user's mistake ends in one line.

A mistake (`UserError`, or settings that cannot be composed) and what the system refuses (`OSError`
with a number) are printed on standard error without a traceback, and the exit status is 2. Any
other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from common.errors import UserError, print, printable, refusal
from common.startup import GC_THRESHOLD
from configs.help import explain
from configs.messages import compiler_failure, is_users_mistake, one_line, unknown_setting
from configs.schema import (
    SCRIPTS,
    all_settings,
    literal,
    no_such_setting,
    register,
    run_folder,
)
from configs.sweep import count_runs, is_plain, is_sweep, split_values, sweep_overrides

# How long other ranks wait for the first one of their node to report a mistake.
RANK_SECONDS = 5
# What torch, the C++ library and Python say if memory is limited.
NO_MEMORY = "can't allocate memory|Cannot allocate memory|bad_alloc|can't start new thread"
MAX_SWEEP = 10_000
# The setting to which the folder of a run belongs, and that of another path.
RUN = {"train": "resume", "convert": "source"}
PATH = {"train": "data=text data.path", "prepare": "data.path"}

ROOT = Path(__file__).resolve().parent.parent
# The mappings of Hydra, which have any keys.
FREE = r"hydra\.(job\.env_set|callbacks|(launcher|sweeper)\.\w+|\w+_logging)\."
# What Hydra would take, and lose or do beside the run.
INSTEAD = {
    "hydra.run.dir": "give run_dir to train.py",
    "hydra.output_subdir": "the settings are in .hydra/ of the run",
    "hydra.job.chdir": "give run_dir to train.py",
    "hydra.mode": "add -m",
    "hydra.sweeper.params": "give values to the settings themselves, such as -m seed=1,2",
}
OF_SWEEPS = r"\+*hydra[./](sweep|sweeper|launcher)\b"
TEXTS = r"([\w.]*\.)?(prompt|text|probe)="


def run_script(name: str, main: Callable[[DictConfig], object]) -> None:
    """Compose configs/<name>.yaml with the command line's overrides, and call `main` with it."""
    # What was imported stays until the end, where Python would search it for garbage for 0.4 s.
    # Once: a process that runs several scripts, as tests do, would keep what the first ones leave.
    if not gc.get_freeze_count():
        gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    register()
    # Otherwise Hydra prints its own summary of an exception and hides the rest.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # The processes that some launchers start (submitit) import the modules of the project.
    paths = [str(ROOT), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    # After a stop, the helpers of a joblib sweep remove what is left, and need not warn of it.
    warnings = [os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker:UserWarning"]
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, warnings))

    @wraps(main)
    def job(config: DictConfig) -> object:
        accept_any_text()  # a launcher may have started another process
        # Also caught inside the job: Hydra adds its own lines to exceptions that leave it.
        with one_line_errors(name):
            return main(config)

    with one_line_errors(name):
        accept_any_text()
        given, overrides = split(sys.argv[1:])
        if "version" in given:
            print(version())
            return
        sys.argv[1:] = read_arguments(sys.argv[1:], name)
        accept_any_help()
        if "--multirun" in sys.argv:
            interrupt_on_signals()
        run = hydra.main(config_path=str(ROOT / "configs"), config_name=name, version_base="1.3")
        if "help" not in given:
            run(job)()
            return
        with redirect_stdout(io.StringIO()) as text, suppress(SystemExit):
            run(job)()
        groups = [override for override in overrides if "=" not in override]
        print(explain(text.getvalue(), name, groups[0] if groups else None))


def interrupt_on_signals() -> None:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt, so that a launcher ends its workers, too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def accept_any_help() -> None:
    """Let parsers have a help that is not a string, as one option of Hydra 1.3's does.

    Since Python 3.14, `add_argument` formats the help and raises "badly formed help string". Can go
    when Hydra gives a string: https://github.com/facebookresearch/hydra/issues/3121.
    """

    def add_argument(self: Any, *names: Any, help: Any = None, **options: Any) -> argparse.Action:
        action = super(argparse.ArgumentParser, self).add_argument(*names, **options)
        action.help = help or action.help
        return action

    argparse.ArgumentParser.add_argument = add_argument  # type: ignore[method-assign]


def accept_any_text() -> None:
    """Print characters that the terminal's encoding lacks as escapes, such as \\xe4; keep bytes of
    the input that it cannot decode, for `as_utf8`."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # tests and notebooks have others
            is_input = stream is sys.stdin
            stream.reconfigure(errors="surrogateescape" if is_input else "backslashreplace")


def as_utf8(text: str) -> str:
    """Text that the locale did not decode, such as LC_ALL=C, decoded as UTF-8 if it is that."""
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        return text


def version() -> str:
    """The versions of glassgpt, torch and Python, in one line."""
    import torch

    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (own,) = re.findall(r'^version = "(.*)"$', project, re.MULTILINE)
    return f"glassgpt {own}, torch {torch.__version__}, Python {platform.python_version()}"


@contextmanager
def one_line_errors(script: str = "train") -> Iterator[None]:
    """Ends the process with status 2 and one line on standard error for a user's mistake."""
    try:
        yield
    except UserError as error:
        fail(printable(str(error)))
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has closed it, as in `sample.py | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        names = ("MemoryError", "OutOfMemoryError")
        is_memory = any(kind.__name__ in names for kind in type(error).__mro__)
        if is_memory or re.search(NO_MEMORY, str(error)):
            fail("out of memory; choose a smaller model, a smaller batch or fewer samples")
        if isinstance(error, OSError) and error.errno:  # the system refuses, whatever and why
            started = "; a run that had already started continues with resume=..."
            again = ", then run the command again" + (started if script == "train" else "")
            fail(refusal(error) + again)
        if message := compiler_failure(error):
            fail(message)
        if not is_users_mistake(error):
            raise
        if unknown := unknown_setting(error):
            message = no_such_setting(unknown, all_settings(SCRIPTS[script]))
            is_given = any(unknown in argument for argument in sys.argv[1:])
            fail(message if is_given else f"{message} (the experiment sets it)")
        fail(one_line(error))


def fail(message: str) -> NoReturn:
    """Print one line on standard error and exit with status 2."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        # Most mistakes are those of all ranks. The first one of the node reports them, and torchrun
        # then ends this one.
        time.sleep(RANK_SECONDS)
    with suppress(OSError):  # standard error is a full disk, or nobody reads it any more
        print("error: " + printable(" ".join(message.split())), file=sys.stderr)
    sys.exit(2)


def read_arguments(arguments: list[str], script: str = "train") -> list[str]:
    """The command line with free text quoted, so that Hydra takes it literally.

    Raises UserError for an unknown flag, and for a sweep (-m) that cannot be made.
    """
    # Not paths, which the file system must find again.
    arguments = [
        as_utf8(argument) if re.match(TEXTS, argument) else argument for argument in arguments
    ]
    given, overrides = split(arguments)
    if script == "compare":
        overrides = name_runs(overrides)
    if "help" in given:
        overrides = [override for override in overrides if "=" in override]  # not a group
    # Hydra cannot override an optional group by its own default.
    overrides = [override for override in overrides if override != "experiment=null"]
    for override in overrides:
        _check_form(override, script)
    # Nothing can be added to the settings, only changed.
    overrides = [re.sub(rf"^\++(?!{FREE})", "", override) for override in overrides]
    if not given and is_sweep(overrides):
        given["multirun"] = True
    flags = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in given.items()
    ]
    types, sweeps = all_settings(SCRIPTS[script]), "multirun" in given
    overrides = [_quote(override, types, sweeps) for override in overrides]
    if sweeps:
        _check_sweep(script, overrides)
        return [*flags, *map(_settled, overrides), *sweep_overrides(overrides)]
    for name in map(setting_name, overrides):
        if re.match(OF_SWEEPS, name) and not given:
            raise UserError(f"{name}: is for a sweep; add -m, or leave it out")
    return [*flags, *overrides]


def name_runs(arguments: Sequence[str]) -> list[str]:
    """The settings of compare.py, with paths as `runs`. A path may contain `=`, as the folders of a
    sweep do."""

    def is_path(argument: str) -> bool:
        return "=" not in argument or "/" in setting_name(argument) or os.path.lexists(argument)

    paths = [argument for argument in arguments if is_path(argument)]
    others = [argument for argument in arguments if not is_path(argument)]
    return [f"runs=[{','.join(map(in_quotes, paths))}]", *others] if paths else others


class _Flags(argparse.ArgumentParser):
    """Hydra's flags, without those that choose another script or other folders."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
        for names in (
            *(("--multirun", "-m"), ("--help", "-h"), ("--version",), ("--resolve",)),
            *(("--hydra-help",), ("--shell-completion", "-sc")),
        ):
            self.add_argument(*names, action="store_true")
        self.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
        infos = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
        self.add_argument("--info", "-i", nargs="?", const="all", choices=infos)
        self.add_argument("--config-dir", "-cd")
        self.add_argument("overrides", nargs="*")

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized"):
            message += "; settings are given without dashes, such as trainer.max_steps=500"
        raise UserError(message)


def split(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The flags that are given, with their values, and the settings. Raises UserError for an
    unknown flag."""
    given = vars(_Flags().parse_intermixed_args(arguments))
    return given, given.pop("overrides", [])


def _check_sweep(script: str, overrides: Sequence[str]) -> None:
    """Raise UserError for a sweep that cannot be made."""
    if script not in ("train", "prepare"):
        raise UserError(
            "-m: only train.py and prepare.py can sweep; run this script once for each value"
        )
    if "LOCAL_RANK" in os.environ:
        raise UserError("-m: cannot be combined with torchrun; sweep without torchrun")
    path = next((each[11:-1] for each in overrides if each.startswith("data.path='")), "")
    if path == "-" or _is_pipe(path):
        raise UserError(
            f"data.path: {path} can be read only once, and not by each run of -m; write the text "
            "to a file"
        )
    if (n_runs := count_runs(overrides)) > MAX_SWEEP:
        raise UserError(f"-m: {n_runs} runs are too many; give at most {MAX_SWEEP} combinations")


def _is_pipe(path: str) -> bool:
    try:
        return Path(path).is_fifo()
    except (OSError, ValueError):  # such as a name that is too long
        return False


def setting_name(override: str) -> str:
    """The name of the setting, or group, that an argument of the command line sets."""
    return override.partition("=")[0]


def overridden() -> list[str]:
    """The names of the settings, and of their groups, that the command line sets."""
    return [setting_name(override) for override in HydraConfig.get().overrides.task]


def _settled(argument: str) -> str:
    """An argument of a sweep, with `runs/latest` as the run to start from replaced by the folder of
    that run: each run of the sweep becomes the latest."""
    setting = setting_name(argument)
    if setting != "init_from":
        return argument

    def folder(match: re.Match[str]) -> str:
        if Path(match[2]).name != "latest":
            return match[0]
        return in_quotes(run_folder(match[2], setting))

    return re.sub(r"""(?<=[=,(])(['"]?)([^,()'"]+)\1(?=[,)]|$)""", folder, argument)


def _check_form(override: str, script: str) -> None:
    """Raise UserError unless this is setting=value in UTF-8."""
    key, equals, _ = override.partition("=")
    try:
        as_utf8(override).encode()
    except UnicodeEncodeError:
        raise UserError(f"{key}: is not UTF-8; convert it to UTF-8") from None
    if re.fullmatch(r"\+*[\w./@-]+", key) and equals:
        for name, advice in INSTEAD.items():
            if f"{key.lstrip('+')}.".startswith(f"{name}."):
                raise UserError(f"{name}: cannot be given on the command line; {advice}")
        return
    hint = "--cfg job prints every setting"
    if os.path.lexists(override):
        is_run = os.path.lexists(Path(override, "config.yaml")) or script not in PATH
        hint = f"did you mean {RUN.get(script, 'run') if is_run else PATH[script]}={override}?"
    raise UserError(f"{override}: must have the form setting=value; {hint}")


def _quote(override: str, types: Mapping[str, Any], sweeps: bool) -> str:
    """A setting with its value in quotes if any text, or the name of a choice, is asked for; of
    several values of a sweep, each, unless it has quotes of its own."""
    key, _, value = override.partition("=")
    kind = types.get(key)
    is_text, is_optional = kind in (str, str | None), kind == str | None
    if not (is_text or (ROOT / "configs" / key).is_dir()):
        return override
    values = split_values(value) if sweeps or not is_text else None
    if values is None:
        return override if is_optional and value == "null" else f"{key}={in_quotes(value)}"
    if not sweeps:
        return override  # Hydra says that it needs -m
    values = [text if is_plain(text, is_optional) else in_quotes(text) for text in values]
    return f"{key}={','.join(values)}"


def in_quotes(text: str) -> str:
    """`text` as Hydra's grammar has it literally: in quotes, a quote is escaped, and so are
    backslashes directly before one."""
    text = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), literal(text))
    return f"'{text}'"
