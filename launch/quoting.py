"""The arguments of a script: its flags, and its settings with free text in the quotes of Hydra's
grammar, so that Hydra takes it literally."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from common.errors import UserError, as_argument
from common.settings import all_settings, check_name, literal, no_such_setting
from store.run import is_latest

NO_EXPERIMENT = "experiment=none"
ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs"
CALLBACK = "+hydra.callbacks.sweep._target_=launch.sweep.Sweep"
# The settings of the command line as a sweep reads them, if Hydra finds that it is one.
if_sweep: list[str] = []
# Hydra's functions that give several values.
FUNCTION = r"\s*(choice|glob|range|shuffle|sort|tag)\(.*\)\s*"
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def read_arguments(arguments: list[str], script: str, kind: type) -> list[str]:
    """The command line with free text quoted, so that Hydra takes it literally.

    Raises UserError for an unknown flag, and for what is no setting of the dataclass `kind`.
    """
    given, overrides = split(arguments)
    overrides = _with_none(overrides)
    types = all_settings(kind)
    if script == "compare":
        overrides = name_runs(overrides)
    elif script == "verdict":
        overrides = name_idea(overrides, types)
    for override in overrides:
        _check_form(override, types, kind)
    flags = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, value in given.items()
    ]
    if_sweep[:] = [quote(override, types, sweeps=True) for override in overrides]
    return [*flags, *(quote(override, types) for override in overrides), CALLBACK]


def _with_none(overrides: Sequence[str]) -> list[str]:
    """The settings with NO_EXPERIMENT, an empty file, in the place of experiment=null, which Hydra
    does not accept, also among the values of a sweep."""
    null = re.compile(r"(?<![\w./-])null(?![\w./-])")
    return [
        null.sub("none", override) if setting_name(override) == "experiment" else override
        for override in overrides
    ]


def name_runs(arguments: Sequence[str]) -> list[str]:
    """The settings of compare.py, with paths as `runs`. A path may contain `=`, as the folders of a
    sweep do."""

    def is_path(argument: str) -> bool:
        return "=" not in argument or "/" in setting_name(argument) or os.path.lexists(argument)

    paths = [argument for argument in arguments if is_path(argument)]
    others = [argument for argument in arguments if not is_path(argument)]
    return _listed("runs", paths, others)


def name_idea(arguments: Sequence[str], own: Collection[str]) -> list[str]:
    """The settings of verdict.py, with those of train.py as `idea`."""
    mine = [one for one in arguments if re.match(r"hydra[./]", one) or setting_name(one) in own]
    return _listed("idea", [argument for argument in arguments if argument not in mine], mine)


def _listed(name: str, values: Sequence[str], others: Sequence[str]) -> list[str]:
    """The settings with one that has a list of texts. Raises UserError if it is given, too."""
    if values and name in map(setting_name, others):
        raise UserError(f"{name}: give all of it as it is, without {name}=")
    return [f"{name}=[{','.join(map(in_quotes, values))}]", *others] if values else [*others]


def choices(group: str) -> list[str]:
    """The options of a group, which are the files in its folder."""
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


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
            message += "the flags are --multirun, --help, --version, --cfg, --resolve, --info and "
            message += "--config-dir"
        raise UserError(message)


def split(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The flags that are given, with their values, and the settings. Raises UserError for an
    unknown flag."""
    # Otherwise -cnx, where -cn=x is meant, would be --cfg=nx.
    divided = [re.sub(r"(?s)\A(-c[dnp])(?=[^=])", r"\1=", argument) for argument in arguments]
    given = vars(_Flags().parse_intermixed_args(divided))
    if "refused" in given:
        raise UserError(
            "--config-name, --config-path: each script has its own settings; change them as "
            "setting=value, or those of train.py by a file with experiment=NAME and --config-dir"
        )
    return given, given.pop("overrides", [])


def setting_name(override: str) -> str:
    """The name of the setting, or group, that an argument of the command line sets."""
    return override.partition("=")[0].lstrip("+")


def by_name(overrides: Iterable[str]) -> dict[str, str]:
    """The arguments that set something by the names of the settings, of each the last one; no
    experiment is as if none was named."""
    found = {setting_name(override): override for override in overrides}
    return {name: override for name, override in found.items() if override != NO_EXPERIMENT}


def overridden() -> dict[str, str]:
    """What the command line sets, by the names of the settings and groups, as it is stored:
    OmegaConf would read what is escaped in a text."""
    task: Any = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    return by_name(task)


def _check_form(override: str, types: Mapping[str, Any], kind: type) -> None:
    """Raise UserError unless this is setting=value in UTF-8, and the setting or group exists."""
    name = setting_name(override)
    try:
        override.encode()
    except UnicodeEncodeError:
        raise UserError(f"{name}: is not UTF-8; convert it to UTF-8") from None
    is_group = (CONFIGS / name.partition("@")[0]).is_dir()
    is_known = name in types or is_group or re.match(r"hydra([./@]|\Z)", name)
    is_path = "=" not in override or (not is_known and os.path.lexists(override))
    if is_path or not re.fullmatch(r"\+*[\w./@-]+=.*", override, re.DOTALL):
        raise UserError(f"{override}: must have the form setting=value; {_meant(override, types)}")
    check_name(name)
    if not is_known:
        raise UserError(no_such_setting(name, kind))
    below = [other for other in types if other.startswith(f"{name}.")]
    if below and (not is_group or re.search(r"[=,]\s*[{\[]", override)):
        raise UserError(
            f"{override}: {name} is a group of settings, not one value; leave it out, or give them "
            f"one by one, such as {below[0]}=..."
        )


def _meant(argument: str, types: Mapping[str, Any]) -> str:
    """What an argument that is no setting may be meant for."""
    if "/" in argument or os.path.lexists(argument) or is_latest(argument):
        names = [name for name in ("run", "source", "resume") if name in types]
        names += ["data=text data.path"] if "data.path" in types else []
        if names:
            path = as_argument(Path(argument))
            return f"did you mean {' or '.join(f'{name}={path}' for name in names)}?"
    return (
        "leave out spaces around the =, and put a text with spaces in quotes; --help lists the "
        "settings"
    )


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
