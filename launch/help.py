"""`--help`: every setting with its value and its meaning, from the comments in the YAML files."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from launch.quoting import CONFIGS, choices

COLUMN = 36  # where the meaning begins
# Hydra's own keys, which are not settings of the project.
NOT_SETTINGS = ("defaults", "hydra")


class Explained(NamedTuple):
    """A line of a YAML file."""

    name: str
    default: str
    comment: str


def read_explained(path: Path, prefix: str = "") -> list[Explained]:
    """The settings of a YAML file by their full names, with the comments behind them."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()

    def walk(node: yaml.MappingNode, prefix: str) -> Iterator[Explained]:
        for key, value in node.value:
            if key.value in NOT_SETTINGS:
                continue
            if isinstance(value, yaml.MappingNode):
                yield from walk(value, f"{prefix}{key.value}.")
                continue
            end = value.end_mark
            default = text[value.start_mark.index : end.index]
            comment = lines[end.line][end.column :].strip().removeprefix("#").strip()
            yield Explained(prefix + key.value, default, comment)

    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    return list(walk(root, prefix))


def explain(text: str, script: str) -> str:
    """Hydra's help, which ends with all settings as YAML, with the meaning of each setting."""
    header, _, settings = text.rstrip().partition(":\n\n")  # of the line "All settings ..."
    header = re.sub(r"\{(\w+)\}", lambda found: ", ".join(choices(found[1])), header)
    values = yaml.safe_load(settings)
    meanings = _meanings(script, values)
    shown = [f"{header}:", ""]
    path: list[str] = []
    for line in settings.splitlines():
        meaning = ""
        if found := re.match(r"( *)([\w.-]+):", line):  # otherwise a text of several lines goes on
            path[len(found[1]) // 2 :] = [found[2]]
            meaning = meanings.get(".".join(path), "")
        shown += _lines(line, meaning)
    return "\n".join(shown)


def _meanings(script: str, values: dict[str, Any]) -> dict[str, str]:
    """What the settings of a script mean, by their full names. A choice that says nothing of one
    means by it what the others do."""
    files = [(CONFIGS / f"{script}.yaml", "")]
    for group, chosen in values.items():
        name = chosen.get("name") if isinstance(chosen, dict) else None
        named = sorted(choices(group), key=lambda choice: choice != name)
        files += [(CONFIGS / group / f"{choice}.yaml", f"{group}.") for choice in named]
    found: dict[str, str] = {}
    for file, prefix in files:
        for setting in read_explained(file, prefix):
            if setting.comment:
                found.setdefault(setting.name, setting.comment)
    return found


def _lines(setting: str, meaning: str) -> list[str]:
    """A setting and its meaning, beside it or below, in the width of the terminal."""
    if not meaning:
        return [setting]
    width = max(shutil.get_terminal_size().columns - COLUMN - 2, 40)
    wrapped = textwrap.wrap(meaning, width, break_on_hyphens=False)
    first = [setting] if len(setting) >= COLUMN else []
    rows = ["" if first else setting, *[""] * (len(wrapped) - 1)]
    return [
        *first,
        *(f"{left:<{COLUMN}}# {right}" for left, right in zip(rows, wrapped, strict=True)),
    ]
