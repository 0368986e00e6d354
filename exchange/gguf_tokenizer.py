"""The tokenizer in a GGUF file, as llama.cpp reads it in src/llama-vocab.cpp.

Promises: the same token for every id. Whether a text gives the same ids depends on how llama.cpp
cuts it into pieces, for which it has a fixed list of patterns: see `pre_tokenizer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from data.pieces import BPE, BYTE, CL100K, GPT2, LLAMA3, O200K, QWEN2, SMOLLM
from data.tokenizer import Tokenizer
from exchange.merges import merges_of, spell

if TYPE_CHECKING:
    from gguf import GGUFWriter


class PreTokenizer(NamedTuple):
    """How llama.cpp cuts text into the pieces within which tokens merge.

    is_same: whether these are our own pieces, so that a text gives the same tokens (but for
        characters that its tables do not have: they are those of Unicode 15). Otherwise some texts
        give other tokens for the same characters, which the model has rarely or never seen.
    """

    name: str
    is_same: bool


PRE_TOKENIZERS = {
    BYTE: PreTokenizer("qwen2", True),  # nothing merges: any would do
    GPT2: PreTokenizer("gpt-2", True),
    SMOLLM: PreTokenizer("smollm", True),
    LLAMA3: PreTokenizer("llama-bpe", True),
    QWEN2: PreTokenizer("qwen2", True),
    # White space at the end of a text differs.
    CL100K: PreTokenizer("llama-bpe", False),
    # llama.cpp knows capitals of ASCII only, and no combining marks.
    O200K: PreTokenizer("gpt-4o", False),
    # Pieces differ where a number follows a space, where line ends follow a symbol, and for 'S.
    # Others differ more: gpt-2 cuts each empty line in two.
    BPE: PreTokenizer("llama-bpe", False),
}


def pre_tokenizer(tokenizer: Tokenizer) -> PreTokenizer:
    """The one of llama.cpp that cuts text most like the tokenizer."""
    return PRE_TOKENIZERS[tokenizer.byte_pairs().pattern]


def add_tokenizer(
    writer: GGUFWriter, tokenizer: Tokenizer, first: int | None, end: int | None
) -> None:
    """Add the tokens, their merges, `first`, which is put before a text, and `end`, the token that
    ends a document, if there are such tokens.

    Raises ValueError for a tokenizer that llama.cpp cannot read.
    """
    from gguf import TokenType

    pairs = tokenizer.byte_pairs()
    tokens = [f"[PAD{token}]" for token in range(tokenizer.vocab_size)]
    types = [TokenType.UNUSED] * tokenizer.vocab_size
    for piece, token in pairs.ranks.items():
        tokens[token], types[token] = spell(piece), TokenType.NORMAL
    for text, token in pairs.special.items():
        tokens[token], types[token] = text, TokenType.CONTROL
    for text, token in pairs.in_text.items():  # llama.cpp finds those that the user defined
        tokens[token], types[token] = text, TokenType.USER_DEFINED
    if len({*tokens}) < len(tokens):  # llama.cpp would abort
        raise ValueError("tokenizer: two tokens have the same spelling; llama.cpp cannot read it")
    ranks, never = pairs.ranks, b"\xff"  # a byte that no UTF-8 text contains
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer(tokenizer).name)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    # Without any merge, llama.cpp does not open the file.
    merges = [f"{spell(pair[0])} {spell(pair[1])}" for _, pair in merges_of(ranks) if pair]
    writer.add_token_merges(merges or [f"{spell(never)} {spell(never)}"])
    # By default, token 11 would begin and end a text. Without a mark, sample.py begins with a line
    # end.
    begin = end if first is None else first
    writer.add_bos_token_id(ranks[b"\n"] if begin is None else begin)
    writer.add_eos_token_id(ranks[never] if end is None else end)
    writer.add_add_bos_token(first is not None)
