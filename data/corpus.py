"""What a corpus is, and how a config becomes one.

Promises: every corpus, generated or read, has the same face, and gives the same text every time it
is asked for. Knows nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from data.shakespeare import ShakespeareConfig, open_shakespeare
from data.tales import Tales, TalesConfig
from data.text import Text, TextConfig

SPLITS = ("train", "val")


@runtime_checkable
class Corpus(Protocol):
    """A text in two splits, "train" and "val"."""

    @property
    def document_end(self) -> str | None:
        """The text that closes every document, if the corpus has such a mark."""

    def fingerprint(self) -> str:
        """Names the exact text of both splits, without generating it where that can be helped."""

    def pieces(self, split: str) -> Iterator[str]:
        """The text of `split`; the pieces joined are the whole, and no piece is large."""

    def floor_bits(self, split: str) -> float | None:
        """The exact information of the text of `split` in bits, where it is known."""


def open_corpus(config: TalesConfig | TextConfig | ShakespeareConfig) -> Corpus:
    """The corpus that `config` describes. Raises UserError for text that cannot be used."""
    if isinstance(config, TalesConfig):
        return Tales(config)
    if isinstance(config, ShakespeareConfig):
        return open_shakespeare(config)
    return Text(config)
