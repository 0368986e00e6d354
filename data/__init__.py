"""From text to batches: corpora, tokenizers, token files, batches.

Only `data.batches` imports torch, so that importing this package is fast.
"""

from data.corpus import CORPORA, Corpus, CorpusConfig, check_corpus, open_corpus
from data.pieces import SPLITS
from data.shakespeare import ShakespeareConfig
from data.tales import TalesConfig
from data.text import TextConfig
from data.tokenizer import StreamDecoder, Tokenizer, TokenizerConfig
from data.tokens import Dataset, prepare

__all__ = [
    "CORPORA",
    "SPLITS",
    "Corpus",
    "CorpusConfig",
    "Dataset",
    "ShakespeareConfig",
    "StreamDecoder",
    "TalesConfig",
    "TextConfig",
    "Tokenizer",
    "TokenizerConfig",
    "check_corpus",
    "open_corpus",
    "prepare",
]
