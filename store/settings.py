"""What a run has stored, as plain values: data, which executes nothing when it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError

from common.errors import UserError, reason
from common.files import read_text

MAX_BYTES = 1 << 18  # bytes; the settings of a run have about 2,000


class _PlainLoader(yaml.SafeLoader):
    """Refuses aliases, with which a small file can describe a huge object."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it contains an alias")
        return super().compose_node(parent, index)


def settings_yaml(settings: Mapping[str, Any]) -> str:
    """The text of config.yaml or resumed.yaml, which `read_settings` reads."""
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=1000)
    if re.search("[\\x85\\u2028\\u2029]", text):  # the library would read ends of lines
        text = yaml.safe_dump(settings, sort_keys=False, width=1000)
    return text


def read_yaml(file: Path) -> Any:
    """The value in a YAML file of a run. Raises UserError if it cannot be read."""
    try:
        return yaml.load(read_text(file, MAX_BYTES), _PlainLoader)
    # ValueError: not UTF-8, or a date; RecursionError: nested too deeply.
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: cannot be read ({reason(error)}); choose another run") from error


def read_settings(file: Path) -> dict[str, Any]:
    """The settings in config.yaml or resumed.yaml of a run, as plain values. Raises UserError if
    the file cannot be read."""
    settings = read_yaml(file)
    if not isinstance(settings, dict):
        raise UserError(f"{file}: does not contain settings; choose another run")
    return settings


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """Raise UserError, naming the file, if the block cannot use it."""
    try:
        yield path
    except (UserError, OSError, SafetensorError, RuntimeError, ValueError, TypeError) as error:
        raise UserError(
            f"{path}: cannot be read ({reason(error)}); choose another checkpoint or run"
        ) from error
