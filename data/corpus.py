"""What every corpus is: documents, each in one of two splits.

A corpus gives the same text every time. It knows nothing of tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SPLITS = ("train", "val")
SAMPLE = 1 << 28  # characters of documents on which a tokenizer is trained


@dataclass
class CorpusConfig:
    """The settings of a corpus: those below `data`."""

    name: str

    def undivided(self) -> CorpusConfig:
        """The settings with which the whole text is one split, if there are any."""
        return self

    def without_trust(self) -> CorpusConfig:
        """The settings, which come with a run and perhaps from a stranger, without what would be
        downloaded. Raises UserError for what only the user may ask for."""
        return self


class Text(NamedTuple):
    """A document before it is in a split. parts: each is read when it is asked for, and before the
    next document."""

    n_bytes: int
    parts: Iterator[str]


class Document(NamedTuple):
    """A text of `split`, in parts as those of `Text`. is_end: whether the text before it is the
    beginning of the same document."""

    split: str
    parts: Iterable[str]
    is_end: bool = False


class Corpus(ABC):
    """Documents in two splits, "train" and "val".

    description: which files are read.
    adds_eos: whether a special token ends each document. A text that is not divided has none.
    document_end: the text that ends every document, where it is a part of the text, as in tales.
    n_bytes: of the text; 0 if that is unknown.
    vocab_size: of a tokenizer that is trained on it, by default; None: chosen by `n_bytes`.
    """

    description: str | None = None
    adds_eos = False
    document_end: str | None = None
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
