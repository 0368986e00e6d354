"""The texts of tokens, also of those that a byte-level tokenizer spells in letters of its own.

Such a tokenizer (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners",
section 2.2) stores every byte of a token as one visible letter: `Ġthere` is " there", and `cafÃ©`
is "café".
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

CHOICES = (None, "byte_level", "text")
# Bytes that are visible in Latin-1 are spelled as there; the others as the letters from U+0100 on.
VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
HIDDEN = [byte for byte in range(256) if byte not in VISIBLE]
LETTERS = {chr(byte): byte for byte in VISIBLE} | {
    chr(256 + place): byte for place, byte in enumerate(HIDDEN)
}
SPACE = chr(256 + HIDDEN.index(32))
# Special tokens such as <s> are no texts; those of some models have letters that spell no byte.
SPECIAL = re.compile(r"<.+>")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def token_texts(tokens: Sequence[str | bytes], decode: str | None) -> list[str]:
    """Every token as a text: bytes as UTF-8, and spelled bytes too, if `decode` is "byte_level" or
    if it is None and the tokens can hardly be anything else. Bytes that are not a whole character
    are escaped. Raises ValueError for a token that is not text, such as an id."""
    if decode not in CHOICES:
        raise ValueError(f'decode: {decode!r} is unknown; choose "byte_level", "text" or None')
    given = [*tokens]
    for token in given:
        if not isinstance(token, str | bytes):
            raise ValueError(
                f"tokens: a {type(token).__name__} is no token; give texts, such as "
                "tokenizer.convert_ids_to_tokens(ids)"
            )
    spelled = [token for token in given if isinstance(token, str)]
    if decode == "byte_level" or (decode is None and _is_byte_level(spelled)):
        given = [token if isinstance(token, bytes) else _read(token) for token in given]
    return [
        token.decode(errors="backslashreplace") if isinstance(token, bytes) else token
        for token in given
    ]


def _read(token: str) -> str | bytes:
    """The bytes that a token spells, or the token itself if it spells none."""
    if SPECIAL.fullmatch(token) or not LETTERS.keys() >= {*token}:
        return token
    return bytes(LETTERS[letter] for letter in token)


def _is_byte_level(tokens: Sequence[str]) -> bool:
    """Whether all tokens spell bytes, and these are a text: words such as "café" spell bytes too,
    but no UTF-8."""
    read = [_read(token) for token in tokens if not SPECIAL.fullmatch(token)]
    data = b"".join(piece for piece in read if isinstance(piece, bytes))
    if any(isinstance(piece, str) for piece in read):
        return False
    # Spelled spaces leave no doubt. The text can then begin and end within a character.
    is_part = any(SPACE in token for token in tokens)
    if is_part:
        data = re.sub(rb"\A[\x80-\xbf]{1,3}", b"", data)
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=not is_part)
    except UnicodeDecodeError:
        return False
    return not CONTROL.search(text)
