r"""The patterns that cut text into pieces; merges never cross the boundaries of pieces.

Promises: every pattern matches any text completely, without gaps. Only patterns of this table are
ever used: matching an arbitrary one can take for ever, or crash. So can matching a long text at
once: it is cut first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# Where every pattern begins a piece, in any context: before a space after a visible character.
WORD_START = r"(?<=\S)(?= )"


# A contraction, a word or symbols with a leading space, up to three digits, line ends with the
# white space before them, other white space.
BPE = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++"
    r"|\s*[\r\n]++|\s+(?!\S)|\s+"
)
# Bytes never merge, so any cut is valid; pieces of this length encode fastest.
BYTE = r"(?s:.{1,64})"
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = (  # and cl100k_base, as it was first published
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = (  # and Qwen3
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Single digits first, then GPT-2's pattern on what is between them, where white space before a
# digit is at the end. `tokenizers` knows digits of a newer Unicode here than in its patterns.
_DIGITS = r"\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}"
SMOLLM = (
    rf"[{_DIGITS}]|'(?:[sdmt]|ll|ve|re)| ?\p{{L}}++| ?[^\s\p{{L}}{_DIGITS}]++"
    rf"|\s+(?=[{_DIGITS}])|\s+(?!\S)|\s+"
)

PATTERNS = (BPE, BYTE, GPT2, CL100K, O200K, LLAMA3, QWEN2, SMOLLM)
PIECE = 1 << 18  # characters that are encoded at a time, about
# Positions where every tokenizer here begins a new piece in any context: where a word starts; after
# a line end between visible characters, except before a slash (o200k_base joins punctuation, line
# ends and slashes).
_BOUNDARY = re.compile(WORD_START + r"|(?<=\S\n)(?=[^\s/])")


def cut(texts: Iterable[str], size: int = PIECE) -> Iterator[str]:
    """The same text in pieces of about `size` characters, cut where every tokenizer begins a piece.

    The tokens of the pieces, concatenated, are therefore the tokens of the whole text. Tokens at a
    cut can differ only in a passage of more than `size` characters without such a position (no
    space after a visible character, no plain line end), which is cut after any character, and with
    an imported tokenizer that is not byte-level BPE.
    """
    waiting: list[str] = []
    length = 0
    for text in texts:
        waiting.append(text)
        length += len(text)
        if length <= 2 * size:
            continue
        whole = "".join(waiting)
        start = 0
        while len(whole) - start > 2 * size:
            place = _BOUNDARY.search(whole, start + size, start + 2 * size)
            end = place.start() if place else start + size
            yield whole[start:end]
            start = end
        waiting = [whole[start:]]
        length = len(waiting[0])
    if length:
        yield "".join(waiting)
