"""Text in pieces: cut where a tokenizer's own pieces begin, encoded ahead in threads."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_FORMAT = 2  # part of every cache key; increment it when a change here changes the files
SPLITS = ("train", "val")
PIECE = 1 << 18  # characters
THREADS = os.cpu_count() or 1

# Positions where every tokenizer here begins a new piece in any context: before a space that
# follows a visible character; after a line end between visible characters, except before a slash
# (o200k_base joins punctuation, line ends and slashes).
_BOUNDARY = re.compile(r"(?<=\S)(?= )|(?<=\S\n)(?=[^\s/])")


def cut(texts: Iterable[str], size: int = PIECE) -> Iterator[str]:
    """The same text in pieces of about `size` characters, cut where every tokenizer begins a piece.

    The tokens of the pieces, concatenated, are therefore the tokens of the whole text. Tokens at a
    cut can differ only in a passage of more than `size` characters without such a position (no
    space after a visible character, no plain line end), which is cut after any character, and with
    an imported tokenizer that is not byte-level BPE.
    """
    waiting: list[str] = []
    length = 0
    for text in texts:
        waiting.append(text)
        length += len(text)
        if length <= 2 * size:
            continue
        whole = "".join(waiting)
        start = 0
        while len(whole) - start > 2 * size:
            place = _BOUNDARY.search(whole, start + size, start + 2 * size)
            end = place.start() if place else start + size
            yield whole[start:end]
            start = end
        waiting = [whole[start:]]
        length = len(waiting[0])
    if length:
        yield "".join(waiting)


def ahead(
    pool: Executor, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """The results in order; a few are computed ahead of their use."""
    running: deque[Future[Result]] = deque()
    for item in items:
        running.append(pool.submit(function, item))
        if len(running) > 2 * THREADS:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()


def cache_key(*parts: str) -> str:
    """A name in the cache folder for what depends on `parts` alone."""
    return hashlib.sha256(json.dumps([_FORMAT, *parts]).encode()).hexdigest()[:32]
