"""A user's mistake, and what the system refuses, end a script in one line on standard error."""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import MarkedYAMLError

from common.errors import UserError, check_choice, printable, refusal
from common.settings import first_line, no_such_setting
from launch.quoting import choices

# How long other ranks wait for the first one of their node to report a mistake.
RANK_SECONDS = 5
# What torch (on Linux, Windows and GPUs), the C++ library and Python say if memory is limited.
NO_MEMORY = (
    "can't allocate memory|not enough memory|out of memory|Cannot allocate memory|bad_alloc|"
    "can't start new thread"
)

# What Hydra says of settings that it cannot compose.
COMPOSING = (HydraException, OmegaConfBaseException, MarkedYAMLError)


@contextmanager
def one_line_errors(script: str = "train", kind: type | None = None) -> Iterator[None]:
    """Ends the process with status 2 and one line on standard error for a user's mistake."""
    try:
        yield
    except UserError as error:
        fail(str(error).replace("\n", "\\n"))  # in the name of a file
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has closed it, as in `sample.py | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if script == "train":
            fail("standard output: its reader has ended; a run continues with resume=...")
    except Exception as error:
        if isinstance(error, MemoryError) or re.search(NO_MEMORY, str(error)):
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
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        try:
            check_choice(group, choice, error.options or choices(group))
        except ValueError as unknown:
            return str(unknown)
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
        line = "error: " + printable(" ".join(message.split()))
        sys.stderr.write(line + "\n")  # at once: jobs of a sweep share the stream
    sys.exit(2)
