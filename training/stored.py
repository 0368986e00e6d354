"""What a run has stored, as plain values: data, which executes nothing when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml
from safetensors import SafetensorError

from common.errors import UserError
from common.files import read_text

Config = TypeVar("Config")
MOST = 1 << 18  # bytes; the settings of a run have about 2,000


class _PlainLoader(yaml.SafeLoader):
    """Refuses aliases, with which a small file can describe a huge object."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it contains an alias")
        return super().compose_node(parent, index)


def read_settings(file: Path) -> dict[str, Any]:
    """The settings in config.yaml or resumed.yaml of a run, as plain values.

    Raises UserError if the file cannot be read.
    """
    try:
        settings = yaml.load(read_text(file, MOST), _PlainLoader)
    # ValueError: not UTF-8, or a date; RecursionError: nested too deeply.
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{file}: cannot be read ({reason}); choose another run") from error
    if not isinstance(settings, dict):
        raise UserError(f"{file}: does not contain settings; choose another run")
    if reserved := next(_reserved_keys(settings), None):  # such as Hydra's _target_
        raise UserError(f"{file}: {reserved}: no such setting; choose another run")
    return settings


def _reserved_keys(node: object) -> Iterator[str]:
    """Keys that begin with an underscore, anywhere in nested settings."""
    if isinstance(node, dict):
        yield from (str(key) for key in node if str(key).startswith("_"))
        for value in node.values():
            yield from _reserved_keys(value)


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by their full names."""
    if not isinstance(settings, dict):
        return {prefix: settings}
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}.{key}" if prefix else key)
    return found


def from_plain(kind: type[Config], values: Mapping[str, Any], prefix: str = "") -> Config:
    """The dataclass `kind` with plain values, whose types are checked.

    Raises ValueError, naming a field after `prefix`.
    """
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    typed = {}
    for name in names:
        if name not in values:
            raise ValueError(f"{prefix}{name}: is missing; choose another run")
        value, hint = values[name], hints[name]
        if isinstance(0.0, hint) and type(value) in (int, str):  # YAML 1.1 reads 1e-5 as text
            try:
                value = float(value)
            except (ValueError, OverflowError) as error:
                raise ValueError(f"{prefix}{name}: {error}; choose another run") from error
        if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
            raise ValueError(f"{prefix}{name}: {value!r} has the wrong type; choose another run")
        typed[name] = value
    if unknown := [name for name in values if name not in names]:
        raise ValueError(f"this clone has no setting {prefix}{unknown[0]}; choose another run")
    try:
        return kind(**typed)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from error


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """Raise UserError, naming the file, if the block cannot use it."""
    try:
        yield path
    except (OSError, SafetensorError, RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path}: cannot be read ({reason}); choose another checkpoint or run"
        ) from error
