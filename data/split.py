"""Which documents, or which ends of them, are for validation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain

from data.corpus import Document, Text

FIRST = 1 << 16  # characters at the start of a document of which the hash is
AHEAD, OVERHEAD = 1 << 25, 200  # bytes of texts that wait in memory, and of Python for each
# A hash decides if chance changes the share of the smaller split by 18% of it or less, and by 0.02
# or less, as a standard deviation: from 278 documents of equal size on if it should be 0.1, from
# 3,056 on if it should be 0.01.
CHANCE, MOST_CHANCE = 0.18, 0.02
LARGE = 0.5  # share of the smaller split, from which on a document is divided
LEAST_END = 0.1  # share of the smaller split; shorter ends are worth little


def split_documents(
    texts: Iterable[Text], val_fraction: float, n_bytes: float = 0, ahead: float = AHEAD
) -> Iterator[Document]:
    """Documents, of which `val_fraction` of the bytes, or nearly so, are for validation.

    n_bytes: of all texts, about; 0 if that is not known. ahead: how much is read before it is
    decided whether the documents are many.

    A document that is large beside the smaller split gives its end. Of many others, a hash of the
    beginning of each decides, whatever their order and number. Of few, chance could choose none:
    one is taken whenever the validation split is short of half of it.
    """
    texts, first, seen = iter(texts), list[Text](), 0
    while seen < ahead and (text := next(texts, None)) is not None:
        first.append(text)
        seen += text.n_bytes + OVERHEAD
    seen = sum(text.n_bytes for text in first)
    n_bytes = max(n_bytes, seen, 1)
    least = min(val_fraction, 1 - val_fraction)
    small = [text.n_bytes for text in first if text.n_bytes <= LARGE * least * n_bytes]
    variance = val_fraction * (1 - val_fraction) * sum(size**2 for size in small)
    deviation = min(CHANCE * least, MOST_CHANCE) * sum(small)
    # The texts that are still to come are taken to be like the first ones.
    are_many = variance * seen <= deviation**2 * n_bytes
    limit = int(val_fraction * (1 << 64))
    seen, short = 0, 0.0  # bytes that the validation split lacks, beside those that a hash chooses
    for size, parts in chain(first, texts):
        seen += size
        n_bytes = max(n_bytes, seen)
        is_large = size > LARGE * least * n_bytes
        if are_many and not is_large:
            yield _hashed(parts, limit)
        else:
            end = LEAST_END * least * n_bytes if is_large else size
            place = max(int(min(size * (1 - val_fraction) - short, size - end)), 0)
            short += val_fraction * size
            if short < end / 2:
                yield Document("train", parts)
            else:
                short -= size - place
                yield from _divided(parts, place)
        for _ in parts:  # to the end of a file, where its checksum is compared
            pass


def _hashed(parts: Iterator[str], limit: int) -> Document:
    """A document that is for validation if the hash of its beginning is below `limit`."""
    first = ""
    while len(first) < FIRST and (part := next(parts, None)) is not None:
        first += part
    digest = hashlib.blake2b(first[:FIRST].encode(), digest_size=8).digest()
    split = "val" if int.from_bytes(digest, "big") < limit else "train"
    return Document(split, chain([first], parts))


def _divided(parts: Iterator[str], place: int) -> Iterator[Document]:
    """A document whose end, from a place in bytes on, is for validation; a character across the
    place is in the end."""
    rest: list[str] = []
    if place:
        beginning = _before(parts, place, rest)
        yield Document("train", beginning)
        for _ in beginning:  # where it has not been read to its end
            pass
    yield Document("val", chain(rest, parts), is_end=place > 0)


def _before(parts: Iterator[str], place: int, rest: list[str]) -> Iterator[str]:
    """A text, given as parts, before a place in bytes. The rest of the last part goes to `rest`."""
    for part in parts:
        encoded = part.encode()
        if len(encoded) > place:
            head = encoded[:place].decode(errors="ignore")
            rest.append(part[len(head) :])
            yield head
            return
        place -= len(encoded)
        yield part
