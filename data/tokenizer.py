"""Tokenizers: text to token ids and back.

Those that the project offers are tiktoken's; that of a converted model is run by the library
`tokenizers`, as it came. Text that spells a special token is encoded as plain text, never as the
token. Decoding the tokens of any Unicode text returns that text, unless an imported tokenizer
normalizes it or adds a space. Loading a saved tokenizer needs no network and executes nothing.
"""

from __future__ import annotations

import base64
import codecs
import copy
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tiktoken
from jaxtyping import Int64, UInt32

from common.errors import UserError, check_choice, check_range
from common.files import find_damage, read_json, read_text, write_sums
from data.imported import LETTERS, bytes_of_tokens, open_library
from data.pieces import BPE, BYTE, PATTERNS, cut

METADATA = "tokenizer.json"
MAX_TOKENS = 1 << 20  # the largest vocabularies in use have a quarter of it
MAX_BYTES = 1 << 26  # bytes of a vocabulary; that of o200k_base has 3.6 MB
END = "<|endoftext|>"  # GPT-2's name of the token between two documents
PRETRAINED = ("gpt2", "cl100k_base", "o200k_base")
IMPORTED = "hugging_face"  # the tokenizer of a converted model, which only its run has


@dataclass
class TokenizerConfig:
    """Which tokenizer; configs/tokenizer/ explains the settings. `hugging_face` is stored in
    converted runs, and cannot be chosen."""

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


class BytePairs(NamedTuple):
    """Byte-level BPE, for programs that encode by themselves. Tokens merge within the pieces into
    which `pattern` cuts a text, the token of the lowest id in `ranks` first.

    special: the ids of tokens that no text is encoded to. in_text: those of tokens that a text is
    encoded to where it has their names, before anything else.
    is_normalized: whether a text is encoded in Unicode's normalization form C.
    """

    pattern: str
    ranks: Mapping[bytes, int]
    special: Mapping[str, int]
    in_text: Mapping[str, int] = {}
    is_normalized: bool = False


@dataclass(eq=False)
class Limits:
    """How many tokens a model has, and what begins and ends its documents.

    vocab_size: more than the largest id, which some ids below it can be without; 0: not more than
        the tokenizer needs.
    bos_id: the id that begins a document; None if no id does. adds_bos: whether it is put before
        every text, or only used to begin one without a prompt.
    eos_ids: the ids that end a document; the first one ends those of a plain text.
    start_ids: those that stand before a text in what a model was trained on (see
        `data.tokens.start_ids`); empty if that is not known.
    document_end: the text that ends every document in what a model was trained on; None if no text
        does. Then ids can.
    """

    vocab_size: int = 0
    bos_id: int | None = None
    adds_bos: bool = True
    eos_ids: tuple[int, ...] = ()
    start_ids: tuple[int, ...] = ()
    document_end: str | None = None


LIMITS, NO_LIMITS = [field.name for field in fields(Limits)], Limits()


class Tokenizer(Limits):
    """Text to token ids and back, by tiktoken.

    special_tokens: the ids of tokens that no text is encoded to, by their names.
    tokens: the bytes of all other tokens.
    cuts_at_spaces: the tokens of any text are those of its words, each with the space before it.

    Raises ValueError if the limits do not fit the encoding.
    """

    file = "tokenizer.tiktoken"  # has the tokens, beside tokenizer.json
    cuts_at_spaces = True

    def __init__(self, encoding: tiktoken.Encoding, limits: Limits = NO_LIMITS) -> None:
        self.encoding = encoding
        tokens = {rank: token for token, rank in encoding._mergeable_ranks.items()}
        self._set(encoding.name, tokens, encoding._special_tokens, limits)

    def _set(
        self, name: str, tokens: dict[int, bytes], special_tokens: dict[str, int], limits: Limits
    ) -> None:
        known = {*tokens, *special_tokens.values()}
        least = max(known) + 1
        Limits.__init__(self, **vars(limits))
        self.vocab_size = limits.vocab_size or least
        check_range("vocab_size", self.vocab_size, least, MAX_TOKENS)
        if not known.issuperset({self.bos_id, *self.eos_ids, *self.start_ids} - {None}):
            raise ValueError("eos_ids: an id that begins or ends a document belongs to no token")
        self.name, self.tokens, self.special_tokens = name, tokens, special_tokens
        self._bytes = [tokens.get(token, b"") for token in range(self.vocab_size)]

    def of_text(self, start_ids: tuple[int, ...], document_end: str | None) -> Tokenizer:
        """The same tokenizer, of a model that was trained on a text with these `start_ids`, and
        `document_end`."""
        found = copy.copy(self)
        found.start_ids, found.document_end = start_ids, document_end
        return found

    @property
    def first_id(self) -> int | None:
        """The id that is put before every text; None if none is, as of a model that was trained on
        a text in which no id divides documents."""
        has_documents = not self.start_ids or {self.bos_id, *self.eos_ids} & {*self.start_ids}
        is_added = self.adds_bos and has_documents and self.document_end is None
        return self.bos_id if is_added else None

    def beginning(self) -> tuple[list[int], bool]:
        """The ids that are continued where there is no prompt, and whether they are also put before
        every prompt."""
        if self.document_end is not None:
            return [*self.start_ids] or self.encode(self.document_end), True
        if self.first_id is not None:
            return [self.first_id], True
        marks = self.start_ids or (self.eos_ids[:1] if self.bos_id is None else (self.bos_id,))
        return [*marks] or self.encode("\n"), False

    def encode_document(self, text: str) -> list[int]:
        """The tokens of a text that begins a document, after those that stand there in training."""
        start, is_added = self.beginning()
        return [*(start if is_added or not text else ()), *self.encode(text)]

    def with_eos(self) -> Tokenizer:
        """A tokenizer for text in documents: the same one if it has an id that ends them, or is
        imported; otherwise `<|endoftext|>` ends them, with a new id if it is not a special token
        yet."""
        if self.eos_ids:
            return self
        has_end = END in self.special_tokens
        encoding = self.encoding if has_end else self._with_special(END, self.vocab_size)
        end = encoding._special_tokens[END]
        size, start = max(self.vocab_size, end + 1), end if self.bos_id is None else self.bos_id
        return Tokenizer(encoding, Limits(size, start, self.adds_bos, eos_ids=(end,)))

    def _with_special(self, name: str, token: int) -> tiktoken.Encoding:
        """The encoding with another special token."""
        return tiktoken.Encoding(
            self.name,
            pat_str=self.encoding._pat_str,
            mergeable_ranks=self.encoding._mergeable_ranks,
            special_tokens={**self.special_tokens, name: token},
        )

    @property
    def separator_ids(self) -> list[int]:
        """The ids between two documents: the one that ends a document, or if there is none, those
        of an empty line."""
        return [*self.eos_ids[:1]] or self.encode("\n\n")

    @cached_property
    def token_bytes(self) -> Int64[np.ndarray, " vocabulary"]:
        """The length of each token in bytes; 0 for special and unused ones."""
        return np.array([len(token) for token in self._bytes], dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """Equal only for two tokenizers that give the same tokens for every text."""
        known = [self.vocab_size, self.metadata(), self.content()]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, in which U+FFFD stands for lone surrogates: those that it has in a
        corpus, whatever its length."""
        return [token for piece in cut([text]) for token in self._encode(piece)]

    def _encode(self, text: str) -> list[int]:
        return self.encoding.encode_ordinary(text)

    def encode_array(self, text: str) -> UInt32[np.ndarray, " tokens"]:
        """As `encode`, for a text without lone surrogates that is a piece of `cut`; without Python
        integers, and without the global interpreter lock."""
        return self._for_arrays.encode_to_numpy(text, disallowed_special=())

    @cached_property
    def _for_arrays(self) -> tiktoken.Encoding:
        """The same encoding, with a special token if it has none: `encode_to_numpy` searches for
        special tokens, and searching for none takes as long as everything else."""
        return self.encoding if self.special_tokens else self._with_special(END, self.vocab_size)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens; special and unused ids have none."""
        return b"".join(self._bytes[token] for token in ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def byte_pairs(self) -> BytePairs:
        """Raises ValueError, for an imported tokenizer, if it is no such."""
        pattern, ranks = self.encoding._pat_str, self.encoding._mergeable_ranks
        return BytePairs(pattern, ranks, self.special_tokens)

    def metadata(self) -> dict[str, Any]:
        """What is stored in tokenizer.json beside the sizes; with `content`, it decides which
        tokens a text has."""
        return {"pattern": self.encoding._pat_str, "special_tokens": self.special_tokens}

    def content(self) -> str:
        """What is saved in `file`, in tiktoken's own format: a line for each token, its bytes in
        base64, a space, its rank."""
        return "".join(
            f"{base64.b64encode(token).decode()} {rank}\n"
            for rank, token in sorted(self.tokens.items())
        )

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `file` into `folder`."""
        limits = {name: getattr(self, name) for name in LIMITS}
        metadata = {"name": self.name, **self.metadata(), **limits}
        (folder / self.file).write_text(self.content(), encoding="utf-8", newline="\n")
        (folder / METADATA).write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
        write_sums(folder, (METADATA, self.file))

    @staticmethod
    def load(folder: Path) -> Tokenizer:
        """The tokenizer that `save` wrote. Raises UserError if a file is missing or damaged, or if
        it needs a library that is not installed."""
        # Not with tiktoken's own loader, which caches a file by its path and misses later changes.
        try:
            metadata = read_json(folder / METADATA)
            kind = ImportedTokenizer if metadata["name"] == IMPORTED else Tokenizer
            if damage := find_damage(folder, (METADATA, kind.file)):
                raise ValueError(damage)
            content = read_text(folder / kind.file, MAX_BYTES)
            ids = {name: tuple(metadata[name]) for name in ("eos_ids", "start_ids")}
            limits = Limits(**{name: metadata[name] for name in LIMITS} | ids)
            return kind._read(metadata, content, limits)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{folder}: its tokenizer cannot be read ({error}); restore its files, or choose "
                "another folder"
            ) from error

    @classmethod
    def _read(cls, metadata: Mapping[str, Any], content: str, limits: Limits) -> Tokenizer:
        """The opposite of `metadata` and `content`. Raises ValueError, KeyError or TypeError for
        damaged content, on which tiktoken panics, and for a pattern that is not in use: matching an
        arbitrary one can take for ever."""
        lines = [line.split() for line in content.splitlines()]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
        special = {str(name): int(token) for name, token in metadata["special_tokens"].items()}
        return cls(
            tiktoken.Encoding(
                str(metadata["name"]),
                pat_str=known_pattern(metadata["pattern"]),
                mergeable_ranks=ranks,
                special_tokens=special,
            ),
            limits,
        )


def known_pattern(pattern: object) -> str:
    """Raises ValueError for one that is not in use."""
    if pattern not in PATTERNS:
        raise ValueError(f"the pattern {pattern!r:.80} is not known")
    return str(pattern)


class Merging(NamedTuple):
    """What `exchange.imported` found out of an imported tokenizer.

    pattern: the one that cuts a text into the pieces within which tokens merge; None if that is
        none that is known. problem: why programs that know the pattern cannot merge as it does;
        None if they can.
    """

    pattern: str | None = None
    is_normalized: bool = False
    problem: str | None = "the tokenizer is not byte-level BPE"


class ImportedTokenizer(Tokenizer):
    """The tokenizer of a converted model, from the content of its `tokenizer.json`: it gives the
    tokens that the model was trained with, whatever its normalizer, pre-tokenizer and merges are.

    Its decoder must be that of byte-level BPE (GPT-2, Llama 3, Qwen) or of SentencePiece (Llama 2,
    Gemma), of which the bytes of a token are known. An added token that is not special is found in
    a text: in_text has their ids; the names of special ones are text there.

    Raises ValueError for a tokenizer that cannot be run, and UserError if the library is missing.
    """

    file = "hugging_face.json"

    def __init__(
        self, content: str, limits: Limits = NO_LIMITS, merging: Merging | None = None
    ) -> None:
        self.library, self._content = open_library(content), content
        self.merging = merging or Merging()
        self.json: dict[str, Any] = json.loads(self.library.to_str())  # with all defaults
        bytes_of = bytes_of_tokens(self.library, self.json)
        model, letters = self.json["model"], {*map(chr, LETTERS.values())}
        unknown = {model.get("unk_token"), model.get("unk_id")}
        special, self.in_text = dict[str, int](), dict[str, int]()
        for entry in self.json["added_tokens"]:
            name, token = entry["content"], entry["id"]
            if not entry["special"]:
                self.in_text[name] = token
            # Some are also ordinary tokens: a letter, or what the model itself makes of a text.
            elif name in letters:
                continue
            elif not unknown.isdisjoint((name, token)) or token not in self._encode(
                bytes_of(name).decode(errors="replace")
            ):
                special[name] = token
        # A name in the vocabulary is not always the one that is decoded: it can be normalized.
        tokens = {
            token: bytes_of(self.library.id_to_token(token))
            for name, token in self.library.get_vocab().items()
            if name not in special
        }
        self._set(IMPORTED, tokens, special, limits)

    @property
    def cuts_at_spaces(self) -> bool:  # type: ignore[override]
        """False if it is not known to be so."""
        is_known = self.merging.pattern is not None
        return is_known and all(re.fullmatch(r"\s+|\S+", name) for name in self.in_text)

    def with_eos(self) -> Tokenizer:
        return self

    def _encode(self, text: str) -> list[int]:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        # Unlike `encode`, this computes no offsets.
        return self.library.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def encode_array(self, text: str) -> UInt32[np.ndarray, " tokens"]:
        return np.array(self._encode(text), np.uint32)

    def byte_pairs(self) -> BytePairs:
        pattern, is_normalized, problem = self.merging
        if problem or pattern is None:
            raise ValueError(problem)
        names = {*self.in_text.values()}
        ranks = {value: token for token, value in self.tokens.items() if token not in names}
        return BytePairs(pattern, ranks, self.special_tokens, self.in_text, is_normalized)

    def metadata(self) -> dict[str, Any]:
        return self.merging._asdict()

    def content(self) -> str:
        return self._content

    @classmethod
    def _read(cls, metadata: Mapping[str, Any], content: str, limits: Limits) -> Tokenizer:
        merging = Merging(**{name: metadata[name] for name in Merging._fields})
        if merging.pattern is not None:
            known_pattern(merging.pattern)
        return cls(content, limits, merging)


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
    trainer.train_from_iterator(iter(texts), vocab_size, buffer_size=16, pattern=BPE)
    ranks = {bytes(token): rank for token, rank in trainer.get_mergeable_ranks()}
    encoding = tiktoken.Encoding("bpe", pat_str=BPE, mergeable_ranks=ranks, special_tokens={})
    return Tokenizer(encoding)


def fixed_tokenizer(name: str) -> Tokenizer:
    """The tokenizer `byte`, or one of `PRETRAINED`, which tiktoken downloads on first use. Raises
    UserError if it cannot be downloaded."""
    if name == "byte":
        ranks = {bytes([byte]): byte for byte in range(256)}
        encoding = tiktoken.Encoding("byte", pat_str=BYTE, mergeable_ranks=ranks, special_tokens={})
        return Tokenizer(encoding)
    try:
        encoding = tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:
        raise UserError(
            f"tokenizer.name: the vocabulary of {name} could not be downloaded "
            f"({type(error).__name__}); set TIKTOKEN_CACHE_DIR to a folder with its files, "
            "or choose tokenizer=bpe"
        ) from error
    return Tokenizer(encoding)
