"""The tokenizer of a converted model: its own `tokenizer.json`, run by the library `tokenizers`.

It gives the tokens that the model was trained with, whatever its normalizer, its pre-tokenizer and
its merges are. Only its decoder must be one of two kinds, of which the bytes of a token are known:
that of byte-level BPE (GPT-2, Llama 3, Qwen), or that of SentencePiece (Llama 2, Gemma).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import UInt32

from common.errors import UserError, installing
from data.merges import BytePairs, merges_of, spell, unspell
from data.patterns import BY_SPELLING, BYTE, GPT2, SMOLLM, Pattern

SENTENCE_PIECE = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}


def tokenizers_library(setting: str) -> Any:
    """The library. Raises UserError, naming `setting`, if it is not installed."""
    try:
        import tokenizers

        return tokenizers
    except ImportError as error:
        raise UserError(
            f"{setting}: needs the library tokenizers; install it with {installing('convert')}"
        ) from error


class HuggingFace:
    """The engine of a `data.tokenizer.Tokenizer`, from the content of a `tokenizer.json`.

    An added token that is not special is found in a text; the names of special ones are text there.
    Raises ValueError for a tokenizer that cannot be run, and UserError if the library is missing.
    """

    name = "hugging_face"
    file = "hugging_face.json"

    def __init__(self, content: str) -> None:
        library = tokenizers_library("tokenizer")
        self.about: dict[str, Any] = {}
        self._content = content
        try:
            self.library = library.Tokenizer.from_str(content)
        except Exception as error:  # the library has no type of its own for it
            raise ValueError(f"tokenizer.json: cannot be read ({error})") from None
        self.library.no_padding()
        self.library.no_truncation()
        self.library.encode_special_tokens = True  # as text
        bytes_of = self._choose_bytes()
        # Merges also make an ordinary token that is marked as special, such as an empty line.
        merges = self.json["model"].get("merges", ())
        added = {entry["content"]: entry for entry in self.json["added_tokens"]}
        for left, right in merges:
            if added.get(left + right, {}).get("special"):
                del added[left + right]
        self.special = {name: entry["id"] for name, entry in added.items() if entry["special"]}
        self.in_text = {name: entry["id"] for name, entry in added.items() if not entry["special"]}
        self.tokens = {
            token: name.encode() if name in added else bytes_of(name)
            for name, token in self.library.get_vocab().items()
            if name not in self.special
        }

    @cached_property
    def json(self) -> dict[str, Any]:
        """The content as the library understands it: with all defaults, in its newest form."""
        return json.loads(self.library.to_str())

    def _choose_bytes(self) -> Any:
        """The function that gives the bytes of a token in the vocabulary."""
        kinds = {step["type"] for step in _steps(self.json["decoder"], "decoders")}
        if self.json["model"]["type"] in ("BPE", "Unigram"):
            if kinds == {"ByteLevel"}:
                return _byte_level
            if kinds and kinds <= SENTENCE_PIECE:
                return _sentence_piece
        raise ValueError(
            f"tokenizer.json: the decoder {', '.join(sorted(kinds)) or 'null'} is neither that of "
            "byte-level BPE nor that of SentencePiece; give another model"
        )

    def encode(self, text: str) -> list[int]:
        # Unlike `encode`, this computes no offsets.
        return self.library.encode_batch_fast([repaired(text)], add_special_tokens=False)[0].ids

    def encode_array(self, text: str) -> UInt32[np.ndarray, " tokens"]:
        return np.array(self.encode(text), np.uint32)

    def content(self) -> str:
        return self._content

    def first_token(self) -> int | None:
        """The token that is put before every text. Raises ValueError if others are added."""
        plain, whole = (
            self.library.encode("a", add_special_tokens=add).ids for add in (False, True)
        )
        before = whole[: len(whole) - len(plain)]
        if len(before) > 1 or whole != before + plain:
            raise ValueError(
                "tokenizer.json: its post_processor adds more than one token before a text, or "
                "tokens after it; give another model"
            )
        return before[0] if before else None

    @cached_property
    def cuts_at_spaces(self) -> bool:
        """As for `Tiktoken`; False if it is not known to be so."""
        try:
            self._unchecked_pairs()
        except ValueError:
            return False
        return all(re.fullmatch(r"\s+|\S+", name) for name in self.in_text)

    def byte_pairs(self) -> BytePairs:
        """Raises ValueError for anything but byte-level BPE with a known pattern, in which each
        token has the merge that its rank alone would give it."""
        pairs = self._unchecked_pairs()
        _check_merges(pairs.ranks, self.json["model"])
        return pairs

    def _unchecked_pairs(self) -> BytePairs:
        """What `byte_pairs` gives, whatever the merges are; checking them takes seconds."""
        model = self.json["model"]
        odd = ("dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix")
        if model["type"] != "BPE" or any(model[key] for key in odd):
            raise ValueError("the tokenizer is not byte-level BPE")
        normalizer = (self.json["normalizer"] or {"type": None})["type"]
        added = [entry for entry in self.json["added_tokens"] if entry["content"] in self.in_text]
        flags = ("lstrip", "rstrip", "single_word", *(["normalized"] if normalizer else []))
        if normalizer not in (None, "NFC") or any(entry[flag] for entry in added for flag in flags):
            raise ValueError("the tokenizer changes a text before it encodes it")
        names = {*self.special, *self.in_text}
        ranks = {unspell(name): n for name, n in model["vocab"].items() if name not in names}
        if any(bytes([byte]) not in ranks for byte in range(256)):
            raise ValueError("the tokenizer does not know all bytes")
        pattern = _pattern_of(self.json["pre_tokenizer"])
        if pattern is None or (pattern is BYTE and model["merges"]):
            raise ValueError("the tokenizer cuts a text with a pattern that is not known here")
        return BytePairs(pattern, ranks, self.special, self.in_text, normalizer == "NFC")


def repaired(text: str) -> str:
    """The text with U+FFFD for lone surrogates, which JSON can spell and UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _steps(value: dict[str, Any] | None, key: str) -> Iterator[dict[str, Any]]:
    """The members of a sequence, or the only one; none for null."""
    if value is None:
        return
    if value["type"] == "Sequence":
        for member in value[key]:
            yield from _steps(member, key)
    else:
        yield value


def _byte_level(name: str) -> bytes:
    try:
        return unspell(name)
    except ValueError:  # no text has such a token
        return name.encode()


def _sentence_piece(name: str) -> bytes:
    if found := re.fullmatch(r"<0x([0-9A-F]{2})>", name):
        return bytes.fromhex(found[1])
    return name.replace("\u2581", " ").encode()


def _pattern_of(pre_tokenizer: dict[str, Any] | None) -> Pattern | None:
    """The pattern that cuts a text as a pre-tokenizer does, if it is known."""
    steps = list(_steps(pre_tokenizer, "pretokenizers"))
    if not steps or steps[-1]["type"] != "ByteLevel" or steps[-1]["add_prefix_space"]:
        return None
    match [step["type"] for step in steps], steps[-1]["use_regex"], steps[0]:
        case ["ByteLevel"], uses_pattern, _:
            return GPT2 if uses_pattern else BYTE
        case ["Digits", "ByteLevel"], True, {"individual_digits": True}:
            return SMOLLM
        # No pattern leaves a gap between two matches.
        case ["Split", "ByteLevel"], False, {"pattern": {"Regex": spelling}, **how}:
            if (how["behavior"], how["invert"]) in (("Isolated", False), ("Removed", True)):
                return BY_SPELLING.get(spelling)
    return None


def _check_merges(ranks: Mapping[bytes, int], model: Mapping[str, Any]) -> None:
    """Raises ValueError for merges that give other tokens for some text than the ranks alone."""
    places = {(left, right): place for place, (left, right) in enumerate(model["merges"])}
    last = -1
    for token, pair in merges_of(ranks):
        if len(token) == 1 or (pair is None and model["ignore_merges"]):
            continue
        place = -1 if pair is None else places.get((spell(pair[0]), spell(pair[1])), -1)
        if place < last or place < 0:
            raise ValueError(
                "the merges of the tokenizer do not follow from the order of its tokens"
            )
        last = place
