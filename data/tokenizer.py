"""Tokenizers: tiktoken `Encoding`s behind one small interface.

Promises: text that spells a special token is encoded as plain text, never as the token, but for
those that a converted model finds in text (`in_text`); decoding the tokens of any Unicode text
returns that text, or its normal form if the tokenizer has a normalizer; loading a saved tokenizer
needs no network and executes nothing. Knows nothing of corpora: training takes any iterable of
text.
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

from data.names import find_names, odd_name
from data.nfc import nfc
from data.patterns import BPE, BYTE, KNOWN_PATTERNS
from errors import UserError, check_choice, check_range
from files import SUMS, find_damage, read_json, read_text, write_sums

FILES = ("tokenizer.json", "tokenizer.tiktoken")
MOST = 1 << 26  # bytes of a vocabulary; that of o200k_base has 3.6 MB
MOST_TOKENS = 1 << 20  # the largest vocabularies in use have a quarter of it
MOST_SPECIAL = 1 << 16  # characters of all special tokens, for which tiktoken makes one pattern
PRETRAINED = ("gpt2", "cl100k_base", "o200k_base")
IMPORTED = "hugging_face"  # the tokenizer of a converted model, which only its run has
NORMALIZERS = ("NFC",)
END = "<|endoftext|>"  # GPT-2's name of the token between two documents


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
                f"vocab_size: the vocabulary of {self.name} is fixed; leave it out, set it to null "
                "if an experiment has set it, or choose tokenizer=bpe"
            )
        check_range("vocab_size", self.vocab_size, 257, 65536)


class Tokenizer:
    """Text to token ids and back.

    vocab_size: more than the largest id, if a model has more tokens than its tokenizer.
    start: the id that begins a document; None if no id does. adds_start: whether it is put before
        every text, or only used to begin one without a prompt.
    ends: the ids that end a document; the first one ends those of a plain text.
    normalizer: "NFC", if text is encoded in Unicode's normalization form C.
    in_text: the names of special tokens that a text is encoded to where it has them, such as
        <think>, with their ids. Their form is <...> or [...].

    Raises ValueError if one of these does not fit the encoding.
    """

    def __init__(
        self,
        encoding: tiktoken.Encoding,
        *,
        vocab_size: int | None = None,
        start: int | None = None,
        adds_start: bool = True,
        ends: tuple[int, ...] = (),
        normalizer: str | None = None,
        in_text: Iterable[str] = (),
    ) -> None:
        if normalizer is not None:
            check_choice("normalizer", normalizer, NORMALIZERS)
        if vocab_size is not None:
            check_range("vocab_size", vocab_size, encoding.n_vocab, MOST_TOKENS)
        self._encoding = encoding
        self.start, self.adds_start, self.ends = start, adds_start, ends
        self.normalizer = normalizer
        self._bytes = [b""] * (encoding.n_vocab if vocab_size is None else vocab_size)
        for token, rank in encoding._mergeable_ranks.items():
            self._bytes[rank] = token
        special, in_text = encoding._special_tokens, {*in_text}
        if not special.keys() >= in_text:
            raise ValueError("in_text: a name is not that of a special token")
        if (odd := odd_name(in_text, special)) is not None:
            raise ValueError(f"in_text: the special token {odd!r:.80} can overlap with another")
        self.in_text = {name: special[name] for name in sorted(in_text, key=special.__getitem__)}
        for name, rank in self.in_text.items():
            self._bytes[rank] = name.encode()
        known = {*encoding._special_tokens.values(), *encoding._mergeable_ranks.values()}
        if not known.issuperset(ends if start is None else (start, *ends)):
            raise ValueError("ends: an id that begins or ends a document belongs to no token")

    def with_limits(self, start: int | None, adds_start: bool, ends: tuple[int, ...]) -> Tokenizer:
        """The same tokenizer, with other ids that begin and end documents."""
        return Tokenizer(
            self._encoding,
            vocab_size=self.vocab_size,
            start=start,
            adds_start=adds_start,
            ends=ends,
            normalizer=self.normalizer,
            in_text=self.in_text,
        )

    def with_document_end(self) -> Tokenizer:
        """A tokenizer for text in documents: the same one if it has an id that ends them; otherwise
        `<|endoftext|>` ends them, with a new id if it is not a special token yet."""
        if self.ends:
            return self
        encoding = self._encoding
        if END not in encoding._special_tokens:
            encoding = tiktoken.Encoding(
                encoding.name,
                pat_str=encoding._pat_str,
                mergeable_ranks=encoding._mergeable_ranks,
                special_tokens={**encoding._special_tokens, END: self.vocab_size},
            )
        end = encoding._special_tokens[END]
        return Tokenizer(
            encoding,
            vocab_size=max(self.vocab_size, encoding.n_vocab),
            start=end if self.start is None else self.start,
            adds_start=self.adds_start,
            ends=(end,),
            normalizer=self.normalizer,
            in_text=self.in_text,
        )

    @property
    def document_end(self) -> list[int]:
        """The ids between two documents: the one that ends a document, or if there is none, those
        of an empty line."""
        return [*self.ends[:1]] or self.encode("\n\n")

    @property
    def special_tokens(self) -> dict[str, int]:
        """The ids of special tokens by their names; text is encoded only to those of `in_text`."""
        return dict(self._encoding._special_tokens)

    @property
    def name(self) -> str:
        return self._encoding.name

    @property
    def vocab_size(self) -> int:
        """More than the largest id; some ids below it may be unused or special."""
        return len(self._bytes)

    @cached_property
    def token_bytes(self) -> Int64[np.ndarray, " vocabulary"]:
        """The length of each token in bytes; 0 for special and unused ones."""
        return np.array([len(token) for token in self._bytes], dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """Equal only for two tokenizers that give the same tokens for every text."""
        rules = [self._encoding._pat_str, self.vocab_size, _dump(self._encoding)]
        if self.normalizer:
            rules.append(self.normalizer)
        if self.in_text:
            rules.append(self.in_text)
        return hashlib.sha256(json.dumps(rules).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        first, *rest = self._cut(text)
        tokens = self._encoding.encode_ordinary(self._normalize(first))
        for name, part in zip(rest[::2], rest[1::2], strict=True):
            tokens.append(self.in_text[name])
            tokens += self._encoding.encode_ordinary(self._normalize(part))
        return tokens

    def encode_array(self, text: str) -> UInt32[np.ndarray, " tokens"]:
        """Like `encode`, but without Python integers, and without the global interpreter lock.

        Raises UnicodeEncodeError for a lone surrogate, which does not occur in UTF-8 text.
        """
        encode = self._for_arrays.encode_to_numpy
        first, *rest = self._cut(text)
        arrays = [encode(self._normalize(first), disallowed_special=())]
        for name, part in zip(rest[::2], rest[1::2], strict=True):
            arrays.append(np.array([self.in_text[name]], dtype=np.uint32))
            arrays.append(encode(self._normalize(part), disallowed_special=()))
        return np.concatenate(arrays) if rest else arrays[0]

    def _cut(self, text: str) -> list[str]:
        """The parts of a text, every second one of which is a name of `in_text`."""
        parts, start = [], 0
        for name in find_names(self.in_text, text):
            parts += [text[start : name.start()], name[0]]
            start = name.end()
        return [*parts, text[start:]]

    def _normalize(self, text: str) -> str:
        return nfc(text) if self.normalizer else text

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
            special_tokens={END: self.vocab_size},
        )

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens; special and unused ids have none, but those of `in_text`."""
        return b"".join(self._bytes[token] for token in ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    @property
    def _more(self) -> dict[str, Any]:
        """What only imported tokenizers have."""
        padded = self.vocab_size if self.vocab_size > self._encoding.n_vocab else None
        more = {
            "vocab_size": padded,
            "start": self.start,
            "adds_start": None if self.adds_start else False,
            "ends": list(self.ends),
            "normalizer": self.normalizer,
            "in_text": list(self.in_text),
        }
        return {name: value for name, value in more.items() if value not in (None, [])}

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `tokenizer.tiktoken` (tiktoken's own format) into `folder`."""
        ranks = _dump(self._encoding)
        about = {
            "name": self.name,
            "pattern": self._encoding._pat_str,
            "special_tokens": self._encoding._special_tokens,
            "ranks_sha256": hashlib.sha256(ranks.encode()).hexdigest(),
            **self._more,
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
            return cls(_encoding(about, ranks), **_more(about))
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
    trainer.train_from_iterator(iter(texts), vocab_size, buffer_size=16, pattern=BPE.tiktoken)
    ranks = {bytes(token): rank for token, rank in trainer.get_mergeable_ranks()}
    return Tokenizer(
        tiktoken.Encoding("bpe", pat_str=BPE.tiktoken, mergeable_ranks=ranks, special_tokens={})
    )


def fixed_tokenizer(name: str, vocab_size: int | None = None) -> Tokenizer:
    """The tokenizer `byte`, or one of `PRETRAINED`, which tiktoken downloads on first use, for a
    model with `vocab_size` tokens, by default as many as it has.

    Raises UserError if it cannot be downloaded, and ValueError if the model has fewer tokens.
    """
    if name == "byte":
        ranks = {bytes([byte]): byte for byte in range(256)}
        encoding = tiktoken.Encoding(
            "byte", pat_str=BYTE.tiktoken, mergeable_ranks=ranks, special_tokens={}
        )
        return Tokenizer(encoding, vocab_size=vocab_size)
    try:
        encoding = tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:
        raise UserError(
            f"tokenizer.name: the vocabulary of {name} could not be downloaded "
            f"({type(error).__name__}); set TIKTOKEN_CACHE_DIR to a folder with its files, "
            "or choose tokenizer=bpe"
        ) from error
    return Tokenizer(encoding, vocab_size=vocab_size)


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
    lines = dump.splitlines()
    for line in lines:
        token, rank = line.split()
        ranks[base64.b64decode(token, validate=True)] = int(rank)
    ids = [*ranks.values(), *special.values()]
    if any(type(each) is not int or not 0 <= each < MOST_TOKENS for each in ids):
        raise ValueError("the id of a token is out of range")
    if len(set(ids)) < len(ids) or len(ranks) < len(lines):
        raise ValueError("two tokens are the same, or have the same id")
    if any(bytes([byte]) not in ranks for byte in range(256)):
        raise ValueError("a single byte is missing in tokenizer.tiktoken")
    if sum(map(len, special)) > MOST_SPECIAL:
        raise ValueError("tokenizer.json has too many special tokens")
    if pattern not in KNOWN_PATTERNS:
        raise ValueError("the pattern in tokenizer.json is not one of those in use")
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


def _more(about: dict[str, Any]) -> dict[str, Any]:
    """What only imported tokenizers have, as arguments of `Tokenizer`."""
    more: dict[str, Any] = {
        name: about[name]
        for name in ("vocab_size", "start", "adds_start", "ends", "normalizer", "in_text")
        if name in about
    }
    more["ends"] = tuple(more.get("ends", ()))
    ids = [more[name] for name in ("vocab_size", "start") if name in more]
    if any(type(each) is not int for each in (*ids, *more["ends"])):
        raise TypeError("an id in tokenizer.json is not an integer")
    if type(more.get("adds_start", True)) is not bool:
        raise TypeError("adds_start in tokenizer.json is neither true nor false")
    if not isinstance(more.get("normalizer", ""), str):
        raise TypeError("the normalizer in tokenizer.json is not a string")
    names = more.get("in_text", [])
    if type(names) is not list or any(type(each) is not str for each in names):
        raise TypeError("in_text in tokenizer.json is not a list of strings")
    return more
