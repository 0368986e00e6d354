"""Calling a function for each item: an exception is reported, and does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

MAX_REASON = 300  # characters of a reason

Item = TypeVar("Item")
Found = TypeVar("Found")


def apart(
    items: Iterable[Item], look: Callable[[Item], Found]
) -> tuple[dict[Item, Found], dict[Item, str]]:
    """What `look` returns for each item; and for each item for which it raises an exception, the
    reason."""
    found: dict[Item, Found] = {}
    problems: dict[Item, str] = {}
    for item in items:
        try:
            found[item] = look(item)
        except Exception as error:
            if isinstance(error, OSError):  # without the path
                reason = str(error.strerror)
            elif isinstance(error, ValueError):
                reason = str(error)
            else:
                reason = f"{type(error).__name__}: {error}"
            problems[item] = reason[:MAX_REASON].encode("utf-8", "backslashreplace").decode()
    return found, problems
