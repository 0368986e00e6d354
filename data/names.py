"""Tokens whose names stand for them in a text, such as <think>: found before anything else is done.

Promises: what `tokenizers` finds, which takes the longest name at the first place where one begins,
among all added tokens: only names are accepted of which no two can overlap.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

_NAME = re.compile(r"[<\[][^\s<>\[\]]+[>\]]")
_BRACKETS = re.compile(r"[<\[][^<>\[\]]*[>\]]")
_NO_BRACKETS = re.compile(r"[^<>\[\]]*")


def odd_name(names: Iterable[str], others: Iterable[str]) -> str | None:
    """A name that could overlap with another: one of `names`, or, if there are any, of `others`,
    which are not found themselves but hide what they overlap."""
    names = [*names]
    odd = [name for name in names if not _NAME.fullmatch(name)]
    if names:
        both = (_BRACKETS, _NO_BRACKETS)
        odd += [other for other in others if not any(each.fullmatch(other) for each in both)]
    return next(iter(odd), None)


def find_names(names: Collection[str], text: str, start: int = 0) -> Iterator[re.Match[str]]:
    """Where `text` has one of `names`, from `start`, in time that does not depend on how many there
    are."""
    if names:
        yield from (found for found in _BRACKETS.finditer(text, start) if found[0] in names)


def end_of_name(names: Collection[str], text: str, start: int, place: int) -> int:
    """`place`, or if it is inside a name, the end of that name. No name extends across `start`."""
    for name in find_names(names, text, start):
        if name.end() > place:
            return name.end() if name.start() < place else place
    return place
