"""Renders the arguments in docstrings (`name: meaning`) as lists, in the API reference."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

griffe: Any = import_module("griffe")  # installed with mkdocstrings; has no types here


class Arguments(griffe.Extension):
    """Griffe calls this for every module, class and function that it has read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            lines = re.sub(r"^(\w+): (?=\w)", r"- `\1`: ", obj.docstring.value, flags=re.MULTILINE)
            # A list needs an empty line before it.
            obj.docstring.value = re.sub(r"(?<=[^\n])\n(?=- `\w+`: )", "\n\n", lines)
