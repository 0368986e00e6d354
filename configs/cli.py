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
import re
import signal
import sys
import time
import traceback
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import MarkedYAMLError

from common.errors import UserError, as_argument, print, printable, refusal
from common.settings import Values, all_settings, first_line, literal, no_such_setting
from common.signals import FirstSignal
from common.startup import GC_THRESHOLD

# How long other ranks wait for the first one of their node to report a mistake.
RANK_SECONDS = 5
# What torch, the C++ library and Python say if memory is limited.
NO_MEMORY = "can't allocate memory|Cannot allocate memory|bad_alloc|can't start new thread"

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs"
# Hydra 1.3 asks which version's defaults are meant; 1.4 warns of an answer, and of targets that are
# not listed: ours, and those of launchers.
IS_1_4 = "execution_whitelist" in inspect.signature(hydra.main).parameters
VERSION: dict[str, Any] = {} if IS_1_4 else {"version_base": "1.3"}
TRUST: dict[str, Any] = {
    "execution_whitelist": ["configs.sweep.Sweep", "hydra.*", "hydra_plugins.*"]
}
CALLBACK = "+hydra.callbacks.sweep._target_=configs.sweep.Sweep"
# What Hydra says of settings that it cannot compose.
COMPOSING = (HydraException, OmegaConfBaseException, MarkedYAMLError)
# The settings of the command line as a sweep reads them, if Hydra finds that it is one.
if_sweep: list[str] = []
# Hydra's functions that give several values.
FUNCTION = r"\s*(choice|glob|range|shuffle|sort|tag)\(.*\)\s*"
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
TEXTS = r"([\w.]*\.)?(prompt|text|probe)="


def run_script(name: str, main: Callable[[Values], object], kind: type) -> None:
    """Compose configs/<name>.yaml with the command line's overrides, and call `main` with the plain
    values, which `common.settings.build` turns into a dataclass.

    kind: that dataclass. Its types tell here which values are texts, and which settings exist."""
    # What was imported stays until the end, where Python would search it for garbage for 0.4 s.
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
            from configs.sweep import leaving_nothing  # which imports this file

            with leaving_nothing():
                run(job)()
            return
        from configs.help import explain  # which a run does not need

        with redirect_stdout(io.StringIO()) as text, suppress(SystemExit):
            run(job)()
        print(explain(text.getvalue(), name))


def plain_values(config: DictConfig) -> Values:
    """What Hydra has composed, without interpolations. Raises UserError for an experiment whose
    settings Hydra would not take for those of the script."""
    container: Any = OmegaConf.to_container(config, resolve=True)
    if "experiment" in container:
        composed = HydraConfig.get().runtime
        name = f"experiment/{composed.choices['experiment']}.yaml"
        files = (Path(source.path) / name for source in composed.config_sources if source.path)
        if any(file.is_file() and file.read_bytes()[:3] == BOM_UTF8 for file in files):
            raise UserError(
                f"experiment: {name} begins with a byte order mark, with which its settings are "
                "not found; save it as UTF-8 without one"
            )
        raise UserError("experiment: the first line of its file must be: # @package _global_")
    return container


def interrupt_on_signals() -> None:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt, so that a launcher ends its workers, too."""

    def interrupt(_number: int) -> NoReturn:
        raise KeyboardInterrupt

    FirstSignal((signal.SIGINT, signal.SIGTERM), interrupt)


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
def one_line_errors(script: str = "train", kind: type | None = None) -> Iterator[None]:
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
        if script == "train":
            fail("standard output: its reader has ended; a run continues with resume=...")
    except Exception as error:
        names = ("MemoryError", "OutOfMemoryError")
        is_memory = any(kind.__name__ in names for kind in type(error).__mro__)
        if is_memory or re.search(NO_MEMORY, str(error)):
            fail("out of memory; choose a smaller model, a smaller batch or fewer samples")
        if isinstance(error, OSError) and error.errno:  # the system refuses, whatever and why
            started = "; a run that had already started continues with resume=..."
            again = ", then run the command again" + (started if script == "train" else "")
            fail(refusal(error) + again)
        if not is_composing_failure(error):
            raise
        fail(composing_failure(error, kind))


def is_composing_failure(error: Exception) -> bool:
    """Whether Hydra or OmegaConf raised an error; they let some exceptions of Python pass."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [frame.f_globals.get("__name__", "").partition(".")[0] for frame in frames]
    others = [name for name in names if name not in sys.stdlib_module_names]
    return isinstance(error, COMPOSING) or others[-1:] in (["hydra"], ["omegaconf"], ["antlr4"])


def composing_failure(error: Exception, kind: type | None) -> str:
    """Hydra's or OmegaConf's message about settings that cannot be composed, after the name of the
    setting."""
    if isinstance(error, UnicodeDecodeError):
        return (
            f"experiment: it, or another file of settings, is not UTF-8 ({error.reason} at byte "
            f"{error.start:,}); save it as UTF-8"
        )
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and kind:
        refused = re.search(r"Could not override '(.+?)'", str(error))
        name = refused[1] if refused else cause.full_key or ""
        if not name.startswith("hydra"):
            return no_such_setting(name, kind)
    if isinstance(error, OverrideParseException):
        # Hydra 1.4 first lists all settings, in a line.
        reason = re.sub(r"(?s)\AError when parsing index: .*'\]\.\n", "", str(error))
        return f"{error.override}: {reason.splitlines()[0]}"
    found = error if isinstance(error, OmegaConfBaseException) else cause
    if isinstance(found, OmegaConfBaseException) and found.full_key:
        return f"{found.full_key}: {first_line(found)}"
    return str(error)


def fail(message: str) -> NoReturn:
    """Print one line on standard error and exit with status 2."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        # Most mistakes are those of all ranks. The first one of the node reports them, and torchrun
        # then ends this one.
        time.sleep(RANK_SECONDS)
    with suppress(OSError):  # standard error is a full disk, or nobody reads it any more
        print("error: " + printable(" ".join(message.split())), file=sys.stderr)
    sys.exit(2)


def read_arguments(arguments: list[str], script: str, kind: type) -> list[str]:
    """The command line with free text quoted, so that Hydra takes it literally.

    Raises UserError for an unknown flag, and for what is no setting of the dataclass `kind`.
    """
    # Not paths, which the file system must find again.
    arguments = [
        as_utf8(argument) if re.match(TEXTS, argument) else argument for argument in arguments
    ]
    given, overrides = split(arguments)
    if script == "compare":
        overrides = name_runs(overrides)
    types = all_settings(kind)
    for before, override in zip(["", *overrides], overrides, strict=False):
        _check_form(override, before, types, kind)
    flags = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in given.items()
    ]
    if_sweep[:] = [quote(override, types, sweeps=True) for override in overrides]
    return [*flags, *(quote(override, types) for override in overrides), CALLBACK]


def name_runs(arguments: Sequence[str]) -> list[str]:
    """The settings of compare.py, with paths as `runs`. A path may contain `=`, as the folders of a
    sweep do."""

    def is_path(argument: str) -> bool:
        return "=" not in argument or "/" in setting_name(argument) or os.path.lexists(argument)

    paths = [argument for argument in arguments if is_path(argument)]
    others = [argument for argument in arguments if not is_path(argument)]
    return [f"runs=[{','.join(map(in_quotes, paths))}]", *others] if paths else others


class _Flags(argparse.ArgumentParser):
    """Those of Hydra's flags that are taken."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
        for names in (("--multirun", "-m"), ("--help", "-h"), ("--version",), ("--resolve",)):
            self.add_argument(*names, action="store_true")
        self.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
        self.add_argument("--info", "-i", nargs="?", const="all", choices=INFO)
        self.add_argument("--config-dir", "-cd")
        # Otherwise -cn would be --cfg=n.
        self.add_argument("--config-name", "-cn", "--config-path", "-cp", dest="refused")
        self.add_argument("overrides", nargs="*")

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized"):
            message += "; settings are given without dashes, such as trainer.max_steps=500, and "
            message += "the flags are --multirun, --help, --version, --cfg, --info and --config-dir"
        raise UserError(message)


def split(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The flags that are given, with their values, and the settings. Raises UserError for an
    unknown flag."""
    given = vars(_Flags().parse_intermixed_args(arguments))
    if "refused" in given:
        raise UserError(
            "--config-name, --config-path: each script has its own settings; change them as "
            "setting=value, or those of train.py by a file with experiment=NAME and --config-dir"
        )
    return given, given.pop("overrides", [])


def setting_name(override: str) -> str:
    """The name of the setting, or group, that an argument of the command line sets."""
    return override.partition("=")[0].lstrip("+")


def overridden() -> list[str]:
    """The names of the settings, and of their groups, that the command line sets."""
    return [setting_name(override) for override in HydraConfig.get().overrides.task]


def _check_form(override: str, before: str, types: Mapping[str, Any], kind: type) -> None:
    """Raise UserError unless this is setting=value in UTF-8, and the setting or group exists."""
    name = setting_name(override)
    try:
        as_utf8(override).encode()
    except UnicodeEncodeError:
        raise UserError(f"{name}: is not UTF-8; convert it to UTF-8") from None
    is_group = (CONFIGS / name.partition("@")[0]).is_dir()
    is_known = name in types or is_group or name.startswith("hydra")
    is_path = "=" not in override or (not is_known and os.path.lexists(override))
    if is_path or not re.fullmatch(r"\+*[\w./@-]+=.*", override, re.DOTALL):
        problem = f"{override}: must have the form setting=value"
        if meant := _setting_of_path(Path(override), types):
            raise UserError(f"{problem}; did you mean {meant}={as_argument(override)}?")
        if types.get(setting_name(before)) in (str, str | None):
            raise UserError(f'{problem}; put a text with spaces in quotes: "{before} {override}"')
        raise UserError(f"{problem}; --help lists the settings")
    if not is_known:
        raise UserError(no_such_setting(name, kind))


def _setting_of_path(path: Path, types: Mapping[str, Any]) -> str | None:
    """The setting that a lone path, as in `sample.py runs/x`, is for; None for other words."""
    is_run = path.parts[:1] in (("runs",), ("latest",)) or (path / "config.yaml").is_file()
    if "data.path" in types and not is_run:
        return "data=text data.path" if os.path.lexists(path) else None
    settings = [name for name in ("run", "source", "resume") if name in types]
    return settings[0] if settings and (is_run or path.is_dir()) else None


def quote(override: str, types: Mapping[str, Any], sweeps: bool = False) -> str:
    """A setting with its value in quotes if a text or a choice is asked for; in a sweep, commas
    divide the values, and what Hydra's functions give, such as choice(a, b), is left to it."""
    name, _, value = override.partition("=")
    kind = types.get(name.lstrip("+"))
    is_choice = (CONFIGS / name).is_dir() and re.fullmatch(r"[\w.-]+", value)
    if not (kind in (str, str | None) or is_choice):
        return override
    values = value.split(",") if sweeps else [value]
    if len(values) > 1:
        if re.fullmatch(FUNCTION, value, re.DOTALL):
            return override
        values = [text.strip() for text in values]
    is_optional = kind == str | None
    plain = [text for text in values if len(values) > 1 and _is_name(text)]
    plain += ["null"] if is_optional else []
    quoted = [text if text in plain else in_quotes(text) for text in values]
    return f"{name}={','.join(quoted)}"


def _is_name(text: str) -> bool:
    """Whether Hydra reads a text as it is without quotes, which folders of a sweep would show."""
    return text.isidentifier() and text.lower() not in ("null", "true", "false", "nan", "inf")


def in_quotes(text: str) -> str:
    """`text` as Hydra's grammar has it literally: in quotes, a quote is escaped, and so are
    backslashes directly before one."""
    text = re.sub(r"(\\*)('|\Z)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), literal(text))
    return f"'{text}'"
