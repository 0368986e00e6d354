r"""A tokenizer as plain values for JSON, which static/tokenizer.js reads.

Promises: the same tokens for every text, in every browser; or the tokenizer is refused. Browsers
know different versions of Unicode, and `\s` is not the same in JavaScript: so the page has the
characters of each class of the pattern, as tiktoken itself finds them.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from typing import Any

import tiktoken

from common.errors import as_mistake
from data.tokenizer import Tokenizer

LONG_S = "\u017f"
NAME = re.compile(r"[<\[][^<>\[\]]*[>\]]")  # as static/tokenizer.js finds them
CLASS = re.compile(r"\\p\{(\w+)\}")


def check_tokenizer(tokenizer: Tokenizer) -> None:
    """Raise UserError, naming a setting, for a tokenizer that a page cannot have."""
    with as_mistake("run: ", ": a live page cannot have it; give a text to look at"):
        pairs = tokenizer.byte_pairs()
        if pairs.is_normalized:
            raise ValueError("the tokenizer changes a text to Unicode's form NFC")
        if odd := [name for name in pairs.in_text if not NAME.fullmatch(name)]:
            raise ValueError(f"the tokenizer finds {odd[0]!r:.80} in a text")


def tokenizer_data(tokenizer: Tokenizer) -> dict[str, Any]:
    """What a page needs.

    tokens: the bytes of each token in base64; empty for special and unused ones.
    start_ids, adds_start: `Tokenizer.beginning`. document_end: see `Tokenizer`.
    names: the ids of tokens that a text is encoded to where it has their names, such as <think>.
    `character_classes` of the pattern come to it in the page: they take a second to find.
    """
    pairs = tokenizer.byte_pairs()
    start_ids, adds_start = tokenizer.beginning()
    return {
        "name": tokenizer.name,
        "pattern": javascript(pairs.pattern),
        "tokens": [
            base64.b64encode(tokenizer.decode_bytes([token])).decode()
            for token in range(tokenizer.vocab_size)
        ],
        "names": {**pairs.in_text},
        "start_ids": start_ids,
        "adds_start": adds_start,
        "eos_ids": list(tokenizer.eos_ids),
        "document_end": tokenizer.document_end,
    }


def character_classes(pattern: str) -> dict[str, str]:
    """The characters that the names in a pattern stand for, as ranges in hexadecimal."""
    return {name: _characters(name) for name in sorted({*CLASS.findall(pattern)})}


def javascript(pattern: str) -> str:
    r"""A pattern of data/pieces.py for JavaScript, in which classes such as \p{L} are always
    between brackets.

    Possessive quantifiers become greedy ones: in these patterns, what follows one never matches
    fewer repetitions.
    """
    pattern = re.sub(r"([+*?]|\{[\d,]+\})\+", r"\1", pattern)
    pattern = re.sub(r"\(\?i:(.*?)\)", _any_case, pattern)
    pattern = pattern.replace("(?s:.", "(?:[^]").replace(r"\x{", r"\u{")
    pattern = pattern.replace(r"\s", r"\p{White_Space}").replace(r"\S", r"[^\p{White_Space}]")
    parts = re.split(r"(\[(?:\\.|[^\]])+\])", pattern)
    parts[::2] = [CLASS.sub(r"[\g<0>]", part) for part in parts[::2]]
    return "".join(parts)


def _any_case(group: re.Match[str]) -> str:
    """A group of letters in lower case, and of classes of them, that matches every case: also the
    long s, as Unicode has it."""

    def both(letters: re.Match[str]) -> str:
        text = letters[1] or letters[0]
        return f"[{text}{text.upper()}{LONG_S * ('s' in text)}]"

    return "(?:" + re.sub(r"\[(\w+)\]|\w", both, group[1]) + ")"


@cache
def _characters(name: str) -> str:
    r"""All characters of \p{name}: tiktoken drops what its pattern does not match."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    probe = tiktoken.Encoding(
        name, pat_str=rf"\p{{{name}}}+", mergeable_ranks=ranks, special_tokens={}
    )
    every = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    ranges: list[list[int]] = []
    for letter in probe.decode(probe.encode_ordinary(every)):
        code = ord(letter)
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return " ".join(f"{first:x}-{last:x}" for first, last in ranges)
