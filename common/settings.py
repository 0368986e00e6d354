"""The one reader of settings: from plain values, such as those of a YAML file, to a dataclass whose
types and ranges are checked.

A group whose choices have settings of their own is annotated with the table of its choices, by
their names: `data: Annotated[CorpusConfig, CORPORA]`; each entry has the dataclass `config`, and
the setting `name` in the group chooses one.

Values are data: nothing in them is an interpolation, and none names code to run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from common.errors import UserError, as_mistake, check_choice

Config = TypeVar("Config")
CAN_BE_NULL = "null: the dataclass derives it"  # Annotated[int, CAN_BE_NULL]
Values = dict[str, Any]
TYPES: dict[type, type] = {int: Integral, float: Real}  # those of NumPy, too


def build(kind: type[Config], values: Mapping[str, Any], prefix: str = "") -> Config:
    """The dataclass `kind` of nested plain values.

    prefix: what precedes the names of the settings in messages, such as "model.". Raises UserError
    ("full.name: what is wrong; what to do") for a setting that is missing, unknown, of the wrong
    type, or out of range.
    """
    return _checked(kind, typed(kind, values, prefix), prefix)


def typed(
    kind: type, values: Mapping[str, Any], prefix: str = "", root: tuple[type, str] | None = None
) -> Values:
    """The plain values with the types that `kind` asks for: 1 becomes 1.0 where a float is meant.
    Raises UserError as `build`, but not for ranges.

    root: the outermost dataclass, and its prefix, if this one is part of another.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{prefix.rstrip('.')}: {values!r} is no group of settings")
    root = root or (kind, prefix)
    hints = get_type_hints(kind, include_extras=True)
    parts = {part.name: part for part in fields(kind)}
    if unknown := [name for name in values if name not in parts]:
        group, _, key = str(unknown[0]).rpartition(".")
        name = f"{prefix}{unknown[0]}"
        check_name(name)
        if group:
            raise UserError(f"{name}: is a key with a dot; write {group}: and, below it, {key}:")
        raise UserError(no_such_setting(name, *root))
    schema = OmegaConf.structured(kind)
    OmegaConf.set_readonly(schema, False)  # that of a frozen dataclass is
    found: Values = {}
    for name, part in parts.items():
        full_name, hint = prefix + name, hints[name]
        value = values.get(name, part.default)
        if value is MISSING or (value is None and hint is str):
            raise UserError(f"{full_name}: is missing; give {full_name}=...")
        if value is None and CAN_BE_NULL in get_args(hint):
            found[name] = None
            continue
        if value is not None and (below := _below(hint, value, full_name)):
            found[name] = typed(below, value, f"{full_name}.", root)
            continue
        if isinstance(value, str) and hint in (str, str | None):
            found[name] = value  # OmegaConf would read ??? as missing
            continue
        try:
            OmegaConf.update(schema, name, literal(value), merge=False)
            value = schema[name]
            # Resolved, so that what `literal` escaped is as it was.
            is_nested = OmegaConf.is_config(value)
            found[name] = OmegaConf.to_container(value, resolve=True) if is_nested else value
        # OmegaConf lets some exceptions of Python pass, such as those of float().
        except (OmegaConfBaseException, ValueError, TypeError, ArithmeticError) as error:
            raise UserError(f"{full_name}: {first_line(error)}") from error
    return found


def check_types(settings: Any) -> None:
    """Raise ValueError for a field of a dataclass that has another type than its annotation, which
    Python lets pass. Whole numbers are floats, too."""
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        kinds, value = get_args(hint) or (hint,), getattr(settings, name)
        if value is None and CAN_BE_NULL in kinds:
            continue
        known = tuple(TYPES.get(kind, kind) for kind in kinds if isinstance(kind, type))
        if not isinstance(value, known) or (isinstance(value, bool) and bool not in kinds):
            names = [kind.__name__ for kind in kinds if isinstance(kind, type)]
            wanted = " or ".join(names).replace("NoneType", "None")
            raise ValueError(f"{name}: {value!r} is of another type; give {wanted}")


def _below(hint: Any, value: Any, name: str) -> type | None:
    """The dataclass of the settings of a group; None for the hint of a single setting."""
    if kinds := _kinds(hint):
        chosen: Any = value.get("name") if isinstance(value, Mapping) else value
        with as_mistake():
            check_choice(f"{name}.name", chosen, kinds)
        return kinds[chosen]
    return next(iter(_dataclasses(hint)), None)


def _kinds(hint: Any) -> dict[str, type]:
    """The dataclasses of the choices of an annotated group, by their names."""
    if get_origin(hint) is not Annotated or CAN_BE_NULL in get_args(hint):
        return {}
    return {name: kind.config for name, kind in get_args(hint)[1].items()}


def _dataclasses(hint: Any) -> list[type]:
    """Those of X or X | None that are dataclasses."""
    return [part for part in (hint, *get_args(hint)) if is_dataclass(part) and type(part) is type]


def _checked(kind: type[Config], values: Values, prefix: str) -> Config:
    """The dataclass of typed values."""
    hints, built = get_type_hints(kind, include_extras=True), dict(values)
    for name, value in values.items():
        if isinstance(value, dict) and (below := _below(hints[name], value, prefix + name)):
            built[name] = _checked(below, value, f"{prefix}{name}.")
    with as_mistake(prefix):
        return kind(**built)


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def literal(values: Any) -> Any:
    """A text, or all texts in nested values, escaped so that OmegaConf reads no interpolation."""
    if isinstance(values, Mapping):
        return {key: literal(value) for key, value in values.items()}
    if isinstance(values, list):
        return [literal(value) for value in values]
    if isinstance(values, str):
        return re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + r"\${", values)
    return values


def flat(values: Any, prefix: str = "") -> Values:
    """Nested settings by their full names."""
    if not isinstance(values, dict):
        return {prefix: values}
    found: Values = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}.{key}" if prefix else key)
    return found


def all_settings(kind: type, prefix: str = "") -> Values:
    """The settings of a dataclass and of those in it, with their types, by their full names; of a
    group whose choices have settings of their own, those of every choice."""
    found: Values = {}
    for key, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is not ClassVar:
            found[name := prefix + key] = hint
            for below in [*_kinds(hint).values()] or _dataclasses(hint):
                found |= all_settings(below, f"{name}.")
    return found


def check_name(name: str) -> None:
    """Raise UserError for `.seed`, `seed.` and `trainer..max_steps`."""
    if not all(re.split("[./@]", name)):
        raise UserError(
            f"{name}: has a dot, slash or @ at an end, or two in a row; give a name as --help "
            "lists it"
        )


def no_such_setting(name: str, kind: type, prefix: str = "") -> str:
    """The message about a setting that does not exist, with the most similar of those of `kind`."""
    names = all_settings(kind, prefix)
    group, _, key = name.partition(".")
    if name in names:  # of another choice, or its group is a value
        kinds = _kinds(get_type_hints(kind, include_extras=True)[group]).items()
        others = " or ".join(
            f"{group}={choice}" for choice, below in kinds if key in get_type_hints(below)
        )
        if not others:
            groups = " or ".join(other for other in names if name.startswith(f"{other}."))
            return f"{name}: a file gives {groups} as one value; give its settings below it there"
        return f"{name}: this choice of {group} has no such setting; add {others}"
    own, keys = name.rpartition(".")[2], {other: other.rpartition(".")[2] for other in names}
    longer = [key for key in keys.values() if len(own) > 2 and key.startswith(own)]
    similar = longer or get_close_matches(own, keys.values(), 1, 0.7)
    named_so = [other for other, key in keys.items() if key in similar]
    for best in get_close_matches(name, named_so, 1, 0):
        return f"{name}: no such setting; did you mean {best}?"
    return f"{name}: no such setting; --help lists them"
