"""Tokens of byte-level tokenizers are shown as text, and no other token is changed."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer

from tensorboard_attention import encode

TEXT = "Hello there, the café has naïve 🧀 and 奶酪.\n\tSo «good»!"


def shown(tokens: Sequence[str | bytes], decode: str | None = None) -> list[str]:
    """The tokens in the header of what is logged."""
    maps = [np.eye(len(tokens))[None, None]]
    return json.loads(encode(maps, tokens, decode=decode)[0])["tokens"]


def byte_level(merges: int) -> ByteLevelBPETokenizer:
    """A tokenizer such as that of GPT-2, Llama 3 or Qwen, trained on the text."""
    made = ByteLevelBPETokenizer()
    made.train_from_iterator([TEXT], vocab_size=256 + merges, min_frequency=0, show_progress=False)
    return made


@pytest.mark.parametrize("decode", [None, "byte_level"])
def test_tokens_of_a_byte_level_tokenizer_are_shown_as_text(decode: str | None) -> None:
    tokenizer = byte_level(200)
    found = tokenizer.encode(TEXT)
    assert any("Ġ" in each for each in found.tokens) and any("Ã©" in each for each in found.tokens)
    assert shown(found.tokens, decode) == [tokenizer.decode([each]) for each in found.ids]
    assert "".join(shown(found.tokens, decode)) == TEXT


@given(text=st.text(min_size=1).filter(lambda text: "<" not in text), merges=st.integers(0, 60))
def test_any_text_comes_back(text: str, merges: int) -> None:
    # Bytes of a character in several tokens are escaped.
    spelled = "".join(shown(byte_level(merges).encode(text).tokens, "byte_level")).encode("utf-8")
    for byte in range(128, 256):
        spelled = spelled.replace(rb"\x%02x" % byte, bytes([byte]))
    if "\\x" not in text:
        assert spelled.decode() == text


def test_a_text_can_be_cut_within_a_character() -> None:
    tokens = byte_level(0).encode("奶 b 奶").tokens
    assert len(tokens) == 9
    assert shown(tokens[2:-1]) == [r"\xb6", " ", "b", " ", r"\xe5", r"\xa5"]


@pytest.mark.parametrize(
    "tokens",
    [
        ["naïve", "Über", "ñ", "£5"],
        [" there", "Ġthere"],  # a byte-level token has no space
        ["Ġorġ", "Ġimgħa"],  # Maltese
        ["āda", "mājā"],  # Latvian
        ["дом", "奶酪", "🧀"],
    ],
)
def test_other_tokens_stay(tokens: list[str]) -> None:
    assert shown(tokens) == tokens


def test_what_is_read_can_be_chosen() -> None:
    assert shown(["Ġthere", "cafÃ©"]) == [" there", "café"]
    assert shown(["<Ġ>", "<奶▁酪>", "Ġthere", "ĊĊ"]) == ["<Ġ>", "<奶▁酪>", " there", "\n\n"]
    assert shown(["cafÃ©"]) == ["café"]
    assert shown(["Ġdid"], "text") == ["Ġdid"]
    assert shown(["Ġthere", "a b", "奶"], "byte_level") == [" there", "a b", "奶"]
    with pytest.raises(ValueError, match="decode: 'bytes' is unknown"):
        shown(["a"], "bytes")


def test_bytes_are_read_as_utf8() -> None:
    tokens: list[str | bytes] = [b"caf", "é".encode(), b" \xf0\x9f", b"\xa7\x80", "Ġ", b"\n"]
    assert shown(tokens) == ["caf", "é", r" \xf0\x9f", r"\xa7\x80", " ", "\n"]
