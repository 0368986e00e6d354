"""Tokens whose names stand for them in a text, such as <think>: found before anything else is done.

Promises: what `tokenizers` finds, which takes the longest name at the first place where one begins,
among all added tokens: only names are accepted of which no two can overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

FORM = re.compile(r"[<\[][^\s<>\[\]]+[>\]]")
# Other added tokens, which are not found, but hide what they overlap.
_APART = re.compile(r"[<\[][^<>\[\]]*[>\]]|[^<>\[\]]*")


def odd_name(names: Iterable[str], others: Iterable[str]) -> str | None:
    """One of `names`, or if there are any, of `others`, that can overlap with another."""
    names = [*names]
    odd = [name for name in names if not FORM.fullmatch(name)]
    if names:
        odd += [name for name in others if not _APART.fullmatch(name)]
    return next(iter(odd), None)


def names_pattern(names: Mapping[str, int]) -> re.Pattern[str] | None:
    """A group that matches any of `names`; None if there are none."""
    return re.compile(f"({'|'.join(map(re.escape, names))})") if names else None


def end_of_name(names: re.Pattern[str] | None, text: str, start: int, place: int) -> int:
    """`place`, or if it is inside a name, the end of that name. No name extends across `start`."""
    for name in names.finditer(text, start) if names else ():
        if name.end() > place:
            return name.end() if name.start() < place else place
    return place
