"""The messages of Hydra and OmegaConf as one line that names the setting and what to do."""

from __future__ import annotations

import re
import sys
import traceback

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError

# What Hydra says of the content of a file, such as that of an experiment.
COMPOSED = re.compile(
    r"In '(?P<group>.+)/(?P<name>.+?)(?:_schema)?': (?P<kind>\w+) raised while composing config:\n"
    r"(?P<first>.*)\n\s*full_key: (?P<key>.*)"
)


def one_line(error: BaseException, sweeps: bool = False) -> str:
    """The innermost cause of an error in one line, which begins with the setting if it is known.

    sweeps: whether the script can take several values of a setting.
    """
    if isinstance(error, MissingConfigException):
        missing = (error.missing_cfg_file or "").rpartition("/")
        options = [option for option in error.options or () if not option.endswith("_schema")]
        return f"{missing[0]}={missing[2]}: is unknown; choose one of {', '.join(options)}"
    if isinstance(error, OverrideParseException):
        return f"{error.override}: must have the form setting=value; quote special characters"
    text = str(error)
    ambiguous = re.match(r"Ambiguous value for argument '(.*)'", text)
    if ambiguous:
        return (
            f"{ambiguous[1]}: several values; "
            f"{'add -m to train once with each' if sweeps else 'give one of them'}, "
            "or quote a text that has a comma: 'setting=\"a, b\"'"
        )
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark):
        return f"{mark.name}: line {mark.line + 1} is not YAML ({error.problem})"
    if composed := COMPOSED.match(text):
        return _in_file(**composed.groupdict())
    override = re.match(r"(?:Could not override|Error merging override) '?([^'\n]*)'?", text)
    cause = error.__cause__
    if override and isinstance(cause, OmegaConfBaseException):
        return f"{override[1]}: {_first_line(cause)}"
    if override:
        return f"{override[1]}: {_first_line(error)}"
    if key := getattr(error, "full_key", None):  # OmegaConf's mark, also on other exceptions
        return f"{key}: {_first_line(error)}"
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return f"settings: cannot be composed ({_first_line(error)}); --help shows their form"
    return _first_line(error)


def _in_file(group: str, name: str, kind: str, first: str, key: str) -> str:
    """The message about the content of a file; the arguments are the groups of `COMPOSED`."""
    if group != "experiment" and re.match("Merge error|Invalid type", first):
        return f"{group}={name}: cannot be used with this script; choose another"
    if key == group == "experiment":
        return f"{group}={name}: the first line of the file must be: # @package _global_"
    return f"{group}={name}: {key + ': ' if key else ''}{first}"


def unknown_setting(error: BaseException) -> str | None:
    """The name of the setting in an error about a setting that does not exist."""
    composed = COMPOSED.match(str(error))
    if composed and composed["kind"] == "ConfigKeyError" and composed["key"] != composed["group"]:
        return composed["key"]
    override = re.match(r"Could not override '([^'=\n]*)", str(error))
    unknown = "not in" in str(error.__cause__) or "not in struct" in str(error)
    return override[1] if override and unknown else None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def is_users_mistake(error: BaseException) -> bool:
    """Whether an error is about a setting that Hydra could not compose.

    Both libraries also let some exceptions of Python pass, such as those of int() and float().
    """
    if isinstance(error, HydraException | OmegaConfBaseException | MarkedYAMLError):
        return True
    names = [
        frame.f_globals.get("__name__", "").partition(".")[0]
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    others = [name for name in names if name not in sys.stdlib_module_names]
    return bool(others) and others[-1] in ("hydra", "omegaconf", "antlr4")
