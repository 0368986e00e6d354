"""Normalization form C: as `tokenizers` has it, wherever a text is cut."""

from __future__ import annotations

import unicodedata

import pytest
from tokenizers import normalizers

from data.nfc import nfc
from tests.data.strings import strings

THEIRS = normalizers.NFC().normalize_str
LETTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


@pytest.mark.parametrize(
    "context",
    ["{}", "q\u0345{}\u0334", "a{}\u0301", "{}\u0301\u0323", "\u1112\u1161{}"],
    ids=["alone", "marks", "accent", "two accents", "hangul"],
)
def test_every_character_is_normalized_as_tokenizers_does(context: str) -> None:
    for start in range(0, len(LETTERS), 1000):
        text = "|".join(context.format(each) for each in LETTERS[start : start + 1000])
        assert nfc(text) == THEIRS(text), hex(ord(LETTERS[start]))


def test_every_composition_is_that_of_tokenizers() -> None:
    parts = [unicodedata.decomposition(each).split() for each in LETTERS]
    pairs = [
        "".join(chr(int(code, 16)) for code in part)
        for part in parts
        if len(part) == 2 and part[0][0] != "<"
    ]
    assert len(pairs) > 900
    for pair in pairs:
        assert nfc(pair) == THEIRS(pair), ascii(pair)
        assert nfc(f"x{pair[0]}\u0345{pair[1]}") == THEIRS(f"x{pair[0]}\u0345{pair[1]}"), ascii(
            pair
        )


def test_any_text_is_normalized_as_tokenizers_does() -> None:
    changed = 0
    for text in strings(3000):
        assert nfc(text) == THEIRS(text), ascii(text)
        changed += nfc(text) != text
    assert changed > 500
    assert nfc("a\ud800e\u0301") == "a\ud800\u00e9"
