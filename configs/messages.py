"""The messages of Hydra and OmegaConf in one line."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import tempfile
import traceback

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import MarkedYAMLError

EXPECTED = (HydraException, OmegaConfBaseException, MarkedYAMLError)
# What OmegaConf says of a value that does not fit, and what we say.
TYPED = r"Value ('.*') of type '\w+' could not be converted to"
UNFIT = {
    f"{TYPED} Integer": r"\1 is not a whole number; give one",
    f"{TYPED} Float": r"\1 is not a number; give one",
    r"Value ('.*') is not a valid bool": r"\1 is unknown; give true or false",
    r"field '.*' is not Optional": "cannot be null; give a value",
    r"Invalid type assigned: .* is not a subclass of": "is a group; give its settings, one by one",
}
SEVERAL = r"(?:Ambiguous value for argument|Sweep parameters) '(.*)'(?:\n1\. | requires )"
EXPERIMENT = "experiment"  # the key of a file without the line that makes its settings global


def one_line(error: BaseException) -> str:
    """The message of an error, and of the one that led to it, in one line."""
    if isinstance(error, MissingConfigException):
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        options = [option for option in error.options or () if not option.endswith("_schema")]
        return f"{group}={name}: is unknown; choose one of {', '.join(options)}"
    if isinstance(error, OverrideParseException):
        return f"{error.override}: must have the form setting=value; quote special characters"
    text = str(error).removeprefix("Error merging override ")
    if isinstance(error.__cause__, OmegaConfBaseException):
        text += f": {error.__cause__}"
    names = re.findall(r"full_key: (.+)", text)
    for pattern, message in UNFIT.items():
        if names and (found := re.search(pattern, text, re.DOTALL)):
            return f"{names[-1]}: {found.expand(message)}"
    if several := re.match(SEVERAL, text, re.DOTALL):
        return f"{several[1]}: has several values; add -m to train a run with each, or give one"
    if unknown := re.match(r"Could not override '(.*?)'", text):
        return f"{unknown[1]}: no such group; --help lists them"
    if schema := re.match(r"In '(\w+)/(\w+)_schema'", text):  # such as the tales of prepare.py
        return f"{schema[1]}={schema[2]}: cannot be used with this script; choose another"
    if f"Key '{EXPERIMENT}' not in" in text:
        return f"{EXPERIMENT}: the first line of its file must be: # @package _global_"
    text = re.sub(r"(?m)^\s*(reference_type=|object_type=|full_key: $).*", "", text)
    text = " ".join(re.sub(r"full_key: (.+)", r"(\1)", text).split())
    return text if isinstance(error, EXPECTED) else f"settings: {text}"


def compiler_failure(error: BaseException) -> str | None:
    """The message about an error of torch.compile; None if it is another one."""
    modules = [*_modules(error), *(kind.__module__ for kind in type(error).__mro__)]
    if not any(name.startswith(("torch._inductor", "torch._dynamo.exc")) for name in modules):
        return None
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
    advice = "install a C++ compiler, such as g++, if there is none"
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", tempfile.gettempdir())
    for path in (sys.modules["torch"].__file__, sysconfig.get_path("include"), cache):
        if path and " " in path:  # which the compiler's command does not quote
            advice = f"move {path}, since a space in its path breaks the compiler's command"
    return f"trainer.compile: PyTorch cannot compile ({reason}); {advice}, or leave compile out"


def _modules(error: BaseException) -> list[str]:
    """The modules through which an error went, up to the one that raised it."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return [frame.f_globals.get("__name__", "") for frame in frames]


def unknown_setting(error: BaseException) -> str | None:
    """The name of the setting in an error about a setting that does not exist."""
    origin = error.__cause__ or error.__context__
    if isinstance(origin, ConfigKeyError | ConfigAttributeError) and origin.full_key != EXPERIMENT:
        return origin.full_key
    return None


def is_users_mistake(error: BaseException) -> bool:
    """Whether an error is about a setting that Hydra could not compose.

    Both libraries also let some exceptions of Python pass, such as those of int() and float().
    """
    if isinstance(error, EXPECTED):
        return True
    names = [name.partition(".")[0] for name in _modules(error)]
    others = [name for name in names if name not in sys.stdlib_module_names]
    return bool(others) and others[-1] in ("hydra", "omegaconf", "antlr4")
