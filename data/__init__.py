"""From text to batches: corpora, tokenizers, token files, batches.

Only `data.batches` imports torch, so that importing this package is fast.
"""

from data.corpora import CORPORA, CorpusConfig, load_dataset, open_corpus
from data.corpus import SPLITS, Corpus
from data.documents import TextConfig
from data.shakespeare import ShakespeareConfig
from data.tales import TalesConfig
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
    "load_dataset",
    "open_corpus",
    "prepare",
]
