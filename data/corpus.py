"""What every corpus is: documents, each in one of two splits.

A corpus gives the same text every time. It knows nothing of tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from data.progress import Reading

SPLITS = ("train", "val")


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
    """A text of `split`, in parts: each is read when it is asked for, and before the next document.
    A document whose parts are not read costs little."""

    split: str
    parts: Iterable[str]


class Corpus(ABC):
    """Documents in two splits, "train" and "val".

    val_fraction: how much of the text is for validation; 1: all.
    description: which files are read, if there are several.
    adds_eos: whether a special token ends each document. A text that is not divided has none, and
        tales have a text of their own between them.
    deduplicate: whether only the first of several equal documents is kept.
    n_bytes: of its files as they are stored; 0 if that is unknown.
    """

    val_fraction: float
    description: str | None = None
    adds_eos = False
    deduplicate = False
    n_bytes = 0

    @abstractmethod
    def fingerprint(self) -> str:
        """Identifies the text of both splits, if possible without generating it."""

    @abstractmethod
    def documents(self, reading: Reading | None = None) -> Iterator[Document]:
        """All documents. `reading` follows the files, and keeps the names of those that are not
        text."""

    def shards(self) -> Sequence[Corpus]:
        """The parts that are encoded one after the other, each into files of its own."""
        return [self]

    def training_text(self) -> Iterator[str]:
        """What a tokenizer is trained on, in parts of moderate size."""
        return text_of(self, "train")

    def document_bits(self) -> Sequence[float] | None:
        """The information of each validation document in bits, where it is known."""
        return None


def text_of(corpus: Corpus, split: str) -> Iterator[str]:
    """The text of `split`, in parts of moderate size."""
    for document in corpus.documents():
        if document.split == split:
            yield from document.parts
