"""The tokenizer in a GGUF file, as llama.cpp reads it in src/llama-vocab.cpp.

Promises: the same token for every id. Whether a text gives the same ids depends on how llama.cpp
cuts it into pieces, for which it has a fixed list of patterns: see `pre_tokenizer`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from data import Tokenizer

if TYPE_CHECKING:
    from gguf import GGUFWriter

# The pattern of Llama 3's tokenizer. That of Qwen2's takes digits one by one.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")


class PreTokenizer(NamedTuple):
    """How llama.cpp cuts text into the pieces within which tokens merge.

    is_same: whether these are our own pieces, so that a text gives the same tokens (but for
        characters that its tables do not have: they are those of Unicode 15). Otherwise some texts
        give other tokens for the same characters, which the model has rarely or never seen.
    """

    name: str
    is_same: bool


# By the SHA-256 of a tokenizer's pattern.
PRE_TOKENIZERS = {
    "bf51d578af57187876ec1c8a34fb0ee2fb3025c50ce663ac154b633ae39de092": PreTokenizer("gpt-2", True),
    hashlib.sha256(LLAMA3.encode()).hexdigest(): PreTokenizer("llama-bpe", True),
    hashlib.sha256(QWEN2.encode()).hexdigest(): PreTokenizer("qwen2", True),
    # cl100k_base: white space at the end of a text differs.
    "f021c3d976978e62ee64cdad150cc3405c2e3d6e3b40407850bb9e8d9eb65899": PreTokenizer(
        "llama-bpe", False
    ),
    # o200k_base: llama.cpp knows capitals of ASCII only, and no combining marks.
    "2d1b8dc11e89af71459b36004f698ab3693f59fd84f63e8ec2b49564ab857420": PreTokenizer(
        "gpt-4o", False
    ),
}
# For the pattern of bpe, whose pieces differ where a number follows a space, where line ends follow
# a symbol, and for 'S. Others differ more: gpt-2 cuts each empty line in two.
NEAREST = PreTokenizer("llama-bpe", False)


def pre_tokenizer(tokenizer: Tokenizer) -> PreTokenizer:
    """The one of llama.cpp that cuts text most like the tokenizer."""
    encoding = tokenizer._encoding
    if len(encoding._mergeable_ranks) == 256:
        return PreTokenizer("qwen2", True)  # nothing merges: any would do
    digest = hashlib.sha256(encoding._pat_str.encode()).hexdigest()
    return PRE_TOKENIZERS.get(digest, NEAREST)


def add_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer, end: int | None) -> None:
    """Add the tokens, their merges and `end`, the token that ends a document, if there is one.

    Raises ValueError for a tokenizer that llama.cpp cannot read.
    """
    from gguf import TokenType

    encoding = tokenizer._encoding
    tokens = [f"[PAD{token}]" for token in range(tokenizer.vocab_size)]
    types = [TokenType.UNUSED] * tokenizer.vocab_size
    for piece, token in encoding._mergeable_ranks.items():
        tokens[token], types[token] = _spell(piece), TokenType.NORMAL
    for text, token in encoding._special_tokens.items():
        tokens[token], types[token] = text, TokenType.CONTROL
    if len({*tokens}) < len(tokens):  # llama.cpp would abort
        raise ValueError("tokenizer: two tokens have the same spelling; llama.cpp cannot read it")
    ranks, never = encoding._mergeable_ranks, b"\xff"  # a byte that no UTF-8 text contains
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer(tokenizer).name)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    # Without any merge, llama.cpp does not open the file.
    pairs = [f"{_spell(a)} {_spell(b)}" for a, b in merges(tokenizer)]
    writer.add_token_merges(pairs or [f"{_spell(never)} {_spell(never)}"])
    # By default, token 11 would begin and end a text. Without a mark, sample.py begins with a line
    # end.
    writer.add_bos_token_id(ranks[b"\n"] if end is None else end)
    writer.add_eos_token_id(ranks[never] if end is None else end)
    writer.add_add_bos_token(False)


def merges(tokenizer: Tokenizer) -> Iterator[tuple[bytes, bytes]]:
    """The two parts from which each token merges, in the order of merging."""
    ranks = tokenizer._encoding._mergeable_ranks
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 2:
            pairs = [ranks.get(a + b, rank) for a, b in pairwise(parts)]
            if (first := min(pairs)) >= rank:
                break
            at = pairs.index(first)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) == 2:
            yield parts[0], parts[1]


def _spell(piece: bytes) -> str:
    """Bytes in the alphabet of GPT-2 (Radford et al. 2019, section 2.2), without white space."""
    return "".join(_ALPHABET[byte] for byte in piece)


def _alphabet() -> list[str]:
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]


_ALPHABET = _alphabet()
