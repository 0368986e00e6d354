"""What every corpus is: documents, each in one of two splits.

A corpus gives the same text every time. It knows nothing of tokens.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, NamedTuple

SPLITS = ("train", "val")
# The characters at the start of a document that decide to which split it belongs.
FIRST = 1 << 16
SAMPLE = 1 << 28  # characters of documents on which a tokenizer is trained


@dataclass
class CorpusConfig:
    """The settings of a corpus: those below `data`.

    document_end: the text that ends every document, if there is one.
    """

    document_end: ClassVar[str | None] = None

    name: str

    def undivided(self) -> CorpusConfig:
        """The settings with which the whole text is one split, if there are any."""
        return self

    def without_trust(self) -> CorpusConfig:
        """The settings, which come with a run and perhaps from a stranger, without what would be
        downloaded. Raises UserError for what only the user may ask for."""
        return self


class Document(NamedTuple):
    """A text of `split`, in parts: each is read when it is asked for, and before the next
    document."""

    split: str
    parts: Iterable[str]


class Corpus(ABC):
    """Documents in two splits, "train" and "val".

    description: which files are read.
    adds_eos: whether a special token ends each document. A text that is not divided has none, and
        tales have a text of their own between them.
    n_bytes: of the text; 0 if that is unknown.
    vocab_size: of a tokenizer that is trained on it, by default; None: chosen by `n_bytes`.
    """

    description: str | None = None
    adds_eos = False
    n_bytes = 0
    vocab_size: int | None = None

    @abstractmethod
    def fingerprint(self) -> str:
        """Identifies the text of both splits, if possible without generating it."""

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """All documents. Raises UserError at the end if they are not those of `fingerprint`, as of
        a file that was saved meanwhile."""

    def training_text(self) -> Iterator[str]:
        """What a tokenizer is trained on, in parts of moderate size. Raises as `documents` does."""
        return text_of(self, "train")

    def document_bits(self) -> Sequence[float] | None:
        """The information of each validation document in bits, where it is known."""
        return None


def text_of(corpus: Corpus, split: str) -> Iterator[str]:
    """The text of `split`, in parts of moderate size."""
    for document in corpus.documents():
        if document.split == split:
            yield from document.parts


def split_by_hash(texts: Iterable[Iterator[str]], val_fraction: float) -> Iterator[Document]:
    """Documents, given as parts, of which about `val_fraction` are for validation: which ones
    depends on the beginning of each alone, whatever the order and the number of the others."""
    limit = int(val_fraction * (1 << 64))
    for parts in texts:
        first = ""
        while len(first) < FIRST and (part := next(parts, None)) is not None:
            first += part
        digest = hashlib.blake2b(first[:FIRST].encode(), digest_size=8).digest()
        split = "val" if int.from_bytes(digest, "big") < limit else "train"
        yield Document(split, chain([first], parts))


def sample_of(texts: Iterator[str], size: int = SAMPLE) -> Iterator[str]:
    """The beginning of the texts of documents, of about `size` characters."""
    for text in texts:
        yield text
        yield "\n"  # no word continues in the next document
        size -= len(text)
        if size < 0:
            return


def cut_at(parts: Iterator[str], place: int) -> tuple[Iterator[str], Iterator[str]]:
    """A text, given as parts, before and after a place in bytes; a character across it is after it.
    The second part continues where the first one was left."""
    rest: list[str] = []

    def before() -> Iterator[str]:
        left = place
        for part in parts:
            encoded = part.encode()
            if len(encoded) > left:
                head = encoded[:left].decode(errors="ignore")
                rest.append(part[len(head) :])
                yield head
                return
            left -= len(encoded)
            yield part

    head = before()

    def after() -> Iterator[str]:
        for _ in head:  # which has not been read
            pass
        yield from rest
        yield from parts

    return head, after()
