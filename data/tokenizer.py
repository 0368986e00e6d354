"""Tokenizers: tiktoken `Encoding`s behind one small interface.

Promises: text that spells a special token is encoded as plain text, never as the token; decoding
the tokens of any Unicode text returns that text; loading a saved tokenizer needs no network and
executes nothing. Knows nothing of corpora: training takes any iterable of text.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken
from jaxtyping import Int64, UInt32

from errors import UserError, check_choice, check_range
from files import SUMS, find_damage, read_json, read_text, write_sums

FILES = ("tokenizer.json", "tokenizer.tiktoken")
MOST = 1 << 26  # bytes of a vocabulary; that of o200k_base has 3.6 MB
PRETRAINED = ("gpt2", "cl100k_base", "o200k_base")
IMPORTED = "hugging_face"  # the tokenizer of a converted model, which only its run has

# Merges never cross the boundaries of these pieces: a contraction, a word or symbols with a leading
# space, up to three digits, line ends with the white space before them, other white space.
BPE_PATTERN = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++"
    r"|\s*[\r\n]++|\s+(?!\S)|\s+"
)
# Bytes never merge, so any cut is valid; pieces of this length encode fastest.
_BYTE_PATTERN = r"(?s:.{1,64})"
# A stored pattern is used only if its SHA-256 is one of these: matching an arbitrary one can take
# for ever, or crash.
KNOWN_PATTERNS = {
    *(hashlib.sha256(each.encode()).hexdigest() for each in (BPE_PATTERN, _BYTE_PATTERN)),
    "bf51d578af57187876ec1c8a34fb0ee2fb3025c50ce663ac154b633ae39de092",  # gpt2
    "f021c3d976978e62ee64cdad150cc3405c2e3d6e3b40407850bb9e8d9eb65899",  # cl100k_base
    "2d1b8dc11e89af71459b36004f698ab3693f59fd84f63e8ec2b49564ab857420",  # o200k_base
}


@dataclass
class TokenizerConfig:
    """Which tokenizer.

    name: bpe (trained on the training split), byte, gpt2, cl100k_base or o200k_base; hugging_face
        is stored in converted runs, and cannot be chosen.
    vocab_size: the number of tokens for bpe, 257 to 65536; None for all others.
    """

    name: str
    vocab_size: int | None

    def __post_init__(self) -> None:
        if self.name != IMPORTED:
            check_choice("name", self.name, ("bpe", "byte", *PRETRAINED))
        if self.vocab_size is None:
            return
        if self.name != "bpe":
            raise ValueError(
                f"vocab_size: the vocabulary of {self.name} is fixed; leave it out, "
                "or choose tokenizer=bpe"
            )
        check_range("vocab_size", self.vocab_size, 257, 65536)


class Tokenizer:
    """Text to token ids and back."""

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self._encoding = encoding
        self._bytes = [b""] * encoding.n_vocab
        for token, rank in encoding._mergeable_ranks.items():
            self._bytes[rank] = token

    @property
    def name(self) -> str:
        return self._encoding.name

    @property
    def vocab_size(self) -> int:
        """One more than the largest id; a few ids below it may be unused or special."""
        return len(self._bytes)

    @cached_property
    def token_bytes(self) -> Int64[np.ndarray, " vocabulary"]:
        """The length of each token in bytes; 0 for special and unused ones."""
        return np.array([len(token) for token in self._bytes], dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """Equal only for two tokenizers that give the same tokens for every text."""
        rules = json.dumps([self._encoding._pat_str, self.vocab_size, _dump(self._encoding)])
        return hashlib.sha256(rules.encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        return self._encoding.encode_ordinary(text)

    def encode_array(self, text: str) -> UInt32[np.ndarray, " tokens"]:
        """Like `encode`, but without Python integers, and without the global interpreter lock.

        Raises UnicodeEncodeError for a lone surrogate, which does not occur in UTF-8 text.
        """
        return self._for_arrays.encode_to_numpy(text, disallowed_special=())

    @cached_property
    def _for_arrays(self) -> tiktoken.Encoding:
        """The same encoding, with a special token if it has none: `encode_to_numpy` searches for
        special tokens, and searching for none takes as long as everything else."""
        encoding = self._encoding
        if encoding._special_tokens:
            return encoding
        return tiktoken.Encoding(
            encoding.name,
            pat_str=encoding._pat_str,
            mergeable_ranks=encoding._mergeable_ranks,
            special_tokens={"<|endoftext|>": self.vocab_size},
        )

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens; special and unused ids have none."""
        return b"".join(self._bytes[token] for token in ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `tokenizer.tiktoken` (tiktoken's own format) into `folder`."""
        ranks = _dump(self._encoding)
        about = {
            "name": self.name,
            "pattern": self._encoding._pat_str,
            "special_tokens": self._encoding._special_tokens,
            "ranks_sha256": hashlib.sha256(ranks.encode()).hexdigest(),
        }
        (folder / "tokenizer.tiktoken").write_text(ranks, encoding="ascii", newline="\n")
        (folder / "tokenizer.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        write_sums(folder, FILES)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """The tokenizer that `save` wrote. Raises UserError if a file is missing or damaged."""
        # Not with tiktoken's own loader, which caches a file by its path and misses later changes.
        try:
            if (folder / SUMS).exists() and (damage := find_damage(folder, FILES)):
                raise ValueError(damage)
            about = read_json(folder / "tokenizer.json")
            ranks = read_text(folder / "tokenizer.tiktoken", MOST)
            if hashlib.sha256(ranks.encode()).hexdigest() != about["ranks_sha256"]:
                raise ValueError("the checksum of tokenizer.tiktoken differs")
            return cls(_encoding(about, ranks))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{folder}: its tokenizer (tokenizer.json, tokenizer.tiktoken) cannot be read "
                f"({error}); restore the two files, or choose another folder"
            ) from error


class StreamDecoder:
    """Decodes a stream of tokens. A character in several tokens is returned with its last byte."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """The text that `token` completes, possibly empty."""
        return self._decoder.decode(self._tokenizer.decode_bytes([token]))

    def flush(self) -> str:
        """U+FFFD for an incomplete character at the end; empty if there is none."""
        return self._decoder.decode(b"", final=True)


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Byte pair encoding with the most frequent merges of `texts`; deterministic.

    Texts with too few distinct pairs give a smaller vocabulary. Each text should be of moderate
    size and end where a word ends.
    """
    import rustbpe

    trainer = rustbpe.Tokenizer()
    # The default buffer of 8192 texts would keep a whole corpus in memory.
    trainer.train_from_iterator(iter(texts), vocab_size, buffer_size=16, pattern=BPE_PATTERN)
    ranks = {bytes(token): rank for token, rank in trainer.get_mergeable_ranks()}
    return Tokenizer(
        tiktoken.Encoding("bpe", pat_str=BPE_PATTERN, mergeable_ranks=ranks, special_tokens={})
    )


def fixed_tokenizer(name: str) -> Tokenizer:
    """The tokenizer `byte`, or one of `PRETRAINED`, which tiktoken downloads on first use.

    Raises UserError if it cannot be downloaded.
    """
    if name == "byte":
        ranks = {bytes([byte]): byte for byte in range(256)}
        return Tokenizer(
            tiktoken.Encoding(
                "byte", pat_str=_BYTE_PATTERN, mergeable_ranks=ranks, special_tokens={}
            )
        )
    try:
        return Tokenizer(tiktoken.get_encoding(name))
    except (OSError, ValueError) as error:
        raise UserError(
            f"tokenizer.name: the vocabulary of {name} could not be downloaded "
            f"({type(error).__name__}); set TIKTOKEN_CACHE_DIR to a folder with its files, "
            "or choose tokenizer=bpe"
        ) from error


def _dump(encoding: tiktoken.Encoding) -> str:
    """One line per token: its bytes in base64, a space, its rank."""
    ranks = sorted(encoding._mergeable_ranks.items(), key=lambda item: item[1])
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks)


def _encoding(about: Any, dump: str) -> tiktoken.Encoding:
    """The encoding of a saved tokenizer, checked first, since tiktoken panics on some errors."""
    name, pattern, special = about["name"], about["pattern"], about["special_tokens"]
    if not isinstance(name, str):
        raise TypeError("the name in tokenizer.json is not a string")
    ranks = {}
    for line in dump.splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token, validate=True)] = int(rank)
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise ValueError("the ranks in tokenizer.tiktoken are not 0, 1, 2, ...")
    if any(bytes([byte]) not in ranks for byte in range(256)):
        raise ValueError("a single byte is missing in tokenizer.tiktoken")
    if any(not len(ranks) <= token < len(ranks) + 1024 for token in special.values()):
        raise ValueError("a special token in tokenizer.json has an id out of range")
    if hashlib.sha256(pattern.encode()).hexdigest() not in KNOWN_PATTERNS:
        raise ValueError("the pattern in tokenizer.json is not one of those in use")
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
