"""Tokenizers: what encodes a text behind one small interface.

Those that the project offers are tiktoken's; that of a converted model is run by the library
`tokenizers` (see `data.imported`). Text that spells a special token is encoded as plain text, never
as the token. Decoding the tokens of any Unicode text returns that text, unless an imported
tokenizer normalizes it or adds a space. Loading a saved tokenizer needs no network and executes
nothing. Knows nothing of corpora: training takes any iterable of text.
"""

from __future__ import annotations

import codecs
import copy
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import tiktoken
from jaxtyping import Int64, UInt32

from common.errors import UserError, check_choice, check_range
from common.files import find_damage, read_json, read_text, write_sums
from data.engine import END, MOST_TOKENS, Tiktoken
from data.imported import HuggingFace
from data.patterns import BPE, BYTE, cut

ABOUT = "tokenizer.json"
MOST_END = 1000  # characters that end a document
MOST = 1 << 26  # bytes of a vocabulary; that of o200k_base has 3.6 MB
PRETRAINED = ("gpt2", "cl100k_base", "o200k_base")
IMPORTED = HuggingFace.name  # the tokenizer of a converted model, which only its run has


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


class Tokenizer:
    """Text to token ids and back.

    vocab_size: more than the largest id, if a model has more tokens than its tokenizer.
    bos_id: the id that begins a document; None if no id does. adds_bos: whether it is put before
        every text, or only used to begin one without a prompt.
    eos_ids: the ids that end a document; the first one ends those of a plain text.
    start_ids: those that stand before a text in what a model was trained on (see
        `data.tokens.start_ids`); empty if that is not known.
    document_end: the text that ends every document in what a model was trained on; None if no text
        does. Then ids can.

    Raises ValueError if one of these does not fit the engine.
    """

    def __init__(
        self,
        engine: Tiktoken | HuggingFace,
        *,
        vocab_size: int | None = None,
        bos_id: int | None = None,
        adds_bos: bool = True,
        eos_ids: tuple[int, ...] = (),
        start_ids: tuple[int, ...] = (),
        document_end: str | None = None,
    ) -> None:
        known = {*engine.tokens, *engine.special.values()}
        least = max(known) + 1
        check_range("vocab_size", vocab_size or least, least, MOST_TOKENS)
        if not known.issuperset({bos_id, *eos_ids, *start_ids} - {None}):
            raise ValueError("eos_ids: an id that begins or ends a document belongs to no token")
        if document_end is not None:
            check_range("document_end", len(document_end), 1, MOST_END)
        self.engine = engine
        self.bos_id, self.adds_bos, self.eos_ids = bos_id, adds_bos, eos_ids
        self.start_ids, self.document_end = start_ids, document_end
        self._bytes = [b""] * (vocab_size or least)
        for token, value in engine.tokens.items():
            self._bytes[token] = value

    def with_special_ids(
        self, bos_id: int | None, adds_bos: bool, eos_ids: tuple[int, ...]
    ) -> Tokenizer:
        """The same tokenizer, with other ids that begin and end documents."""
        return Tokenizer(
            self.engine,
            vocab_size=self.vocab_size,
            bos_id=bos_id,
            adds_bos=adds_bos,
            eos_ids=eos_ids,
        )

    def of_text(self, start_ids: tuple[int, ...], document_end: str | None) -> Tokenizer:
        """The same tokenizer, of a model that was trained on a text with these `start_ids`, and
        `document_end`."""
        found = copy.copy(self)
        found.start_ids, found.document_end = start_ids, document_end
        return found

    def beginning(self) -> tuple[list[int], bool]:
        """The ids that are continued where there is no prompt, and whether they are also put before
        every prompt."""
        if self.document_end is not None:
            return [*self.start_ids] or self.encode(self.document_end), True
        if self.bos_id is not None and self.adds_bos:
            return [self.bos_id], True
        marks = self.start_ids or (self.eos_ids[:1] if self.bos_id is None else (self.bos_id,))
        return [*marks] or self.encode("\n"), False

    def with_eos(self) -> Tokenizer:
        """A tokenizer for text in documents: the same one if it has an id that ends them, or is
        imported; otherwise `<|endoftext|>` ends them, with a new id if it is not a special token
        yet."""
        if self.eos_ids or not isinstance(self.engine, Tiktoken):
            return self
        engine = self.engine
        if END not in engine.special:
            engine = Tiktoken(engine.with_special(END, self.vocab_size))
        end = engine.special[END]
        size = max(self.vocab_size, end + 1)
        bos_id = end if self.bos_id is None else self.bos_id
        return Tokenizer(
            engine, vocab_size=size, bos_id=bos_id, adds_bos=self.adds_bos, eos_ids=(end,)
        )

    @property
    def separator_ids(self) -> list[int]:
        """The ids between two documents: the one that ends a document, or if there is none, those
        of an empty line."""
        return [*self.eos_ids[:1]] or self.encode("\n\n")

    @property
    def special_tokens(self) -> dict[str, int]:
        """The ids of special tokens by their names."""
        return dict(self.engine.special)

    @property
    def name(self) -> str:
        return self.engine.name

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
        known = [self.vocab_size, self.engine.about, self.engine.content()]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, in which U+FFFD stands for lone surrogates: those that it has in a
        corpus, whatever its length."""
        return [token for piece in cut([text]) for token in self.engine.encode(piece)]

    def encode_array(self, text: str) -> UInt32[np.ndarray, " tokens"]:
        """As `encode`, but without Python integers, and in threads."""
        return self.engine.encode_array(text)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens; special and unused ids have none."""
        return b"".join(self._bytes[token] for token in ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and the file of the engine into `folder`."""
        engine = self.engine
        about = {
            "name": self.name,
            **engine.about,
            "vocab_size": self.vocab_size,
            "bos_id": self.bos_id,
            "adds_bos": self.adds_bos,
            "eos_ids": self.eos_ids,
            "start_ids": self.start_ids,
            "document_end": self.document_end,
        }
        (folder / engine.file).write_text(engine.content(), encoding="utf-8", newline="\n")
        (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        write_sums(folder, (ABOUT, engine.file))

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """The tokenizer that `save` wrote. Raises UserError if a file is missing or damaged, or if
        it needs a library that is not installed."""
        # Not with tiktoken's own loader, which caches a file by its path and misses later changes.
        try:
            about = read_json(folder / ABOUT)
            is_imported = about["name"] == IMPORTED
            file = HuggingFace.file if is_imported else Tiktoken.file
            if damage := find_damage(folder, (ABOUT, file)):
                raise ValueError(damage)
            content = read_text(folder / file, MOST)
            document_end = about["document_end"]
            if not isinstance(document_end, str | None):
                raise TypeError(f"document_end: {document_end!r:.80} is not a string")
            engine = HuggingFace(content) if is_imported else Tiktoken.load(about, content)
            return cls(
                engine,
                vocab_size=about["vocab_size"],
                bos_id=about["bos_id"],
                adds_bos=bool(about["adds_bos"]),
                eos_ids=tuple(about["eos_ids"]),
                start_ids=tuple(about["start_ids"]),
                document_end=document_end,
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{folder}: its tokenizer cannot be read ({error}); restore its files, or choose "
                "another folder"
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
    encoding = tiktoken.Encoding(
        "bpe", pat_str=BPE.tiktoken, mergeable_ranks=ranks, special_tokens={}
    )
    return Tokenizer(Tiktoken(encoding))


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
        return Tokenizer(Tiktoken(encoding), vocab_size=vocab_size)
    try:
        encoding = tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:
        raise UserError(
            f"tokenizer.name: the vocabulary of {name} could not be downloaded "
            f"({type(error).__name__}); set TIKTOKEN_CACHE_DIR to a folder with its files, "
            "or choose tokenizer=bpe"
        ) from error
    return Tokenizer(Tiktoken(encoding), vocab_size=vocab_size)
