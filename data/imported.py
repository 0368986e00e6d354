"""What of a `tokenizer.json` of Hugging Face is needed to run it, by the library `tokenizers`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from common.errors import UserError, installing

SENTENCE_PIECE = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
# Byte-level BPE spells bytes that are neither visible nor unambiguous with letters from U+0100.
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]
LETTERS = {byte: byte for byte in _VISIBLE} | {byte: 256 + i for i, byte in enumerate(_HIDDEN)}
_BYTES = {letter: byte for byte, letter in LETTERS.items()}


def tokenizers_library(setting: str) -> Any:
    """The library. Raises UserError, naming `setting`, if it is not installed."""
    try:
        import tokenizers

        if not hasattr(tokenizers, "models"):
            raise ImportError("version 1 has another interface")
        return tokenizers
    except ImportError as error:
        raise UserError(
            f"{setting}: needs the library tokenizers, before its version 1; install it with "
            f"{installing('convert')}"
        ) from error


def open_library(content: str) -> Any:
    """A tokenizer of the library, which encodes a text as it is. Raises ValueError for damaged
    content."""
    library = tokenizers_library("tokenizer")
    try:
        found = library.Tokenizer.from_str(content)
    except Exception as error:  # the library has no type of its own for it
        raise ValueError(f"tokenizer.json: cannot be read ({error})") from None
    found.no_padding()
    found.no_truncation()
    found.encode_special_tokens = True  # as text
    return found


def bytes_of_tokens(library: Any, json: Mapping[str, Any]) -> Callable[[str], bytes]:
    """The function that gives the bytes to which the library decodes a token, by its name. Raises
    ValueError for a decoder that is neither that of byte-level BPE nor that of SentencePiece."""
    kinds = {step["type"] for step in steps_of(json["decoder"], "decoders")}

    def sentence_piece(name: str) -> bytes:
        if "ByteFallback" in kinds and (found := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", name)):
            return bytes.fromhex(found[1])
        # Between others: a space at the start of a text would be dropped.
        text: str = library.decoder.decode(["a", name, "a"])
        return text[1:-1].encode()

    if json["model"]["type"] in ("BPE", "Unigram"):
        if kinds == {"ByteLevel"}:
            return _byte_level
        if kinds and kinds <= SENTENCE_PIECE:
            return sentence_piece
    raise ValueError(
        f"tokenizer.json: the decoder {', '.join(sorted(kinds)) or 'null'} is neither that of "
        "byte-level BPE nor that of SentencePiece; give another model"
    )


def steps_of(value: dict[str, Any] | None, key: str) -> Iterator[dict[str, Any]]:
    """The members of a sequence, or the only one; none for null."""
    if value is None:
        return
    if value["type"] == "Sequence":
        for member in value[key]:
            yield from steps_of(member, key)
    else:
        yield value


def unspell(letters: str) -> bytes:
    """The bytes that byte-level BPE spells. Raises ValueError for other letters."""
    try:
        return bytes([_BYTES[ord(letter)] for letter in letters])
    except KeyError:
        raise ValueError("not the letters of bytes") from None


def _byte_level(name: str) -> bytes:
    try:
        return unspell(name)
    except ValueError:  # as the library does
        return name.encode()
