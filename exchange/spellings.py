"""Other ways in which the patterns that cut text into pieces are written for `tokenizers`.

Promises: a pattern cuts any text in the same way in all its spellings.
"""

from __future__ import annotations

from data.pieces import GPT2, PATTERNS

SPELLINGS = {
    GPT2: (
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    )
}


def oniguruma(pattern: str) -> str:
    """The pattern for the engine of `tokenizers`, which reads `{1,3}+` as a repeated group, and `$`
    as the end of a line. Without the `+`, what follows never asks for fewer digits."""
    return pattern.replace("{1,3}+", "{1,3}").replace("$", r"\z")


BY_SPELLING = {
    spelling: pattern
    for pattern in PATTERNS
    for spelling in (pattern, oniguruma(pattern), *SPELLINGS.get(pattern, ()))
}
