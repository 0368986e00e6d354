"""From text to batches: corpora, tokenizers, token files, batches.

What needs torch stays in `data.batches`, so that importing this package is quick.
"""

from data.corpus import SPLITS, Corpus, open_corpus
from data.shakespeare import ShakespeareConfig
from data.tales import TalesConfig
from data.text import TextConfig
from data.tokenizer import StreamDecoder, Tokenizer, TokenizerConfig
from data.tokens import Dataset, prepare

__all__ = [
    "SPLITS",
    "Corpus",
    "Dataset",
    "ShakespeareConfig",
    "StreamDecoder",
    "TalesConfig",
    "TextConfig",
    "Tokenizer",
    "TokenizerConfig",
    "open_corpus",
    "prepare",
]
