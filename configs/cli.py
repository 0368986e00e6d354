"""How a script starts: Hydra composes its settings, and a user's mistake ends in one line.

A mistake (`UserError`, or settings that cannot be composed) is printed on standard error without
a traceback, and the exit status is 2. Anything else is a fault of the program and keeps its own.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

import hydra
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

from configs.messages import is_users_mistake, one_line
from configs.schema import register
from errors import UserError

# Settings whose values are free text or paths: commas, brackets and quotes in them mean themselves.
FREE_TEXT = (
    "run",
    "resume",
    "run_dir",
    "cache_dir",
    "data.path",
    "data.url",
    "prompt",
    "prompt_file",
    "text",
    "html",
    "observe.attention.probe",
    "observe.samples.prompt",
)

# A full disk, a quota, a file-size limit, a folder that is read-only, a broken disk.
DISK_REFUSES = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
)

# Of these, one option must be chosen.
GROUPS = ("data", "tokenizer", "model", "optimizer")


def run_script(name: str, main: Callable[[DictConfig], object]) -> None:
    """Compose configs/<name>.yaml with the command line's overrides, and call `main` with it."""
    register()
    # Hydra would otherwise print its own summary of an exception and hide the rest.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # Launchers that start processes of their own (submitit) have them import the script's parts.
    root = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    threading.excepthook = _end_thread

    @wraps(main)
    def job(config: DictConfig) -> object:
        # Caught inside the job as well: Hydra adds lines of its own to what leaves it.
        with one_line_errors():
            return main(config)

    with one_line_errors():
        sys.argv[1:] = read_arguments(sys.argv[1:], sweeps=name == "train")
        configs = str(Path(__file__).resolve().parent)
        hydra.main(config_path=configs, config_name=name, version_base="1.3")(job)()


def _end_thread(end: threading.ExceptHookArgs) -> None:
    """A full disk ends the thread that writes events; the main thread tells it, in one line."""
    if not _is_disk(end.exc_value):
        threading.__excepthook__(end)


def _is_disk(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno in DISK_REFUSES


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Ends the process with status 2 and one line on standard error for a user's mistake."""
    try:
        yield
    except UserError as error:
        fail(str(error))
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone, as in `sample.py | head`: nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if isinstance(error, OSError) and _is_disk(error):
            fail(
                f"{error.filename or 'disk'}: cannot be written ({error.strerror}); "
                "make room there or let it be written to, then start again, or go on with "
                "resume=... where a run had begun"
            )
        if type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error):
            fail("memory: there is not enough; choose a smaller model or batch, or fewer samples")
        if not is_users_mistake(error):
            raise
        fail(one_line(error))


def fail(message: str) -> None:
    """Print one line on standard error and exit with status 2."""
    print("error: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(2)


def read_arguments(arguments: list[str], sweeps: bool = True) -> list[str]:
    """The command line with free text quoted, so that Hydra takes it as it is.

    Raises UserError for an unknown flag, and for a sweep (-m) unless the script `sweeps`. A sweep
    is left alone: there commas separate values.
    """
    if "-m" in arguments:  # wherever it stands
        arguments = ["-m", *(each for each in arguments if each != "-m")]
    known, unknown = get_args_parser().parse_known_args(arguments)
    if unknown:
        raise UserError(
            f"{unknown[0]}: no such flag; "
            "settings are given without dashes, as in trainer.max_steps=500"
        )
    if known.multirun and not sweeps:
        raise UserError("-m: only train.py sweeps; run this script once for each value")
    if known.multirun and "LOCAL_RANK" in os.environ:
        raise UserError("-m: torchrun trains one run; sweep without torchrun")
    if known.resolve and not known.cfg:
        raise UserError("--resolve: goes with --cfg job alone")
    for argument in arguments:
        key, _, value = argument.partition("=")
        if not key:
            raise UserError(f"{argument}: is no setting=value; --cfg job prints every setting")
        if value == "null" and key in GROUPS:
            raise UserError(f"{argument}: is no choice; --help lists the choices of {key}")
    return arguments if known.multirun else [_quote_free_text(argument) for argument in arguments]


def _quote_free_text(argument: str) -> str:
    key, equals, value = argument.partition("=")
    if key in GROUPS and re.fullmatch(r"[\d.e+-]+|[+-]?(nan|inf)|true|false", value, re.I):
        return f"{key}='{value}'"  # a name, though no group has it: Hydra tells those that it has
    is_quoted = re.fullmatch(r"'([^'\\]|\\.)*'|\"([^\"\\]|\\.)*\"", value, re.DOTALL)
    is_null = value == "null" and not key.endswith("prompt")  # prompt=null asks for that word
    if key not in FREE_TEXT or not equals or is_null or is_quoted:
        return argument
    # Hydra's grammar: in quotes, a quote is escaped, and so are backslashes right before one;
    # OmegaConf's: an escaped ${ is no interpolation.
    value = re.sub(r"(\\*)\$\{", lambda m: m[1] * 2 + r"\${", value)
    value = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value)
    return f"{key}='{value}'"
