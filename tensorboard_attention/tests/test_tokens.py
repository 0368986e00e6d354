"""Tokens of byte-level tokenizers are shown as text, and no other token is changed."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tensorboard_attention import encode

TEXT = "Hello there, the café has naïve 🧀 and 奶酪.\n\tSo «good»!"


def shown(tokens: Sequence[str | bytes], decode: str | None = None) -> list[str]:
    """The tokens in the header of what is logged."""
    maps = [np.eye(len(tokens))[None, None]]
    return json.loads(encode(maps, tokens, decode=decode)[0])["tokens"]


def byte_level(texts: list[str], merges: int) -> PreTrainedTokenizerFast:
    """A tokenizer of transformers, as GPT-2, Llama 3 and Qwen have one, trained on these texts."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<奶▁酪>"]
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=len(letters) + len(special) + merges,
            initial_alphabet=letters,
            special_tokens=special,
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=special[0])


@pytest.mark.parametrize("decode", [None, "byte_level"])
def test_tokens_of_a_byte_level_tokenizer_are_shown_as_text(decode: str | None) -> None:
    tokenizer = byte_level([TEXT], 200)
    ids = tokenizer(TEXT).input_ids
    tokens = tokenizer.convert_ids_to_tokens(ids)
    assert any("Ġ" in each for each in tokens) and any("Ã©" in each for each in tokens)
    assert shown(tokens, decode) == [tokenizer.decode([each]) for each in ids]
    assert "".join(shown(tokens, decode)) == TEXT


@given(text=st.text(min_size=1).filter(lambda text: "<" not in text), merges=st.integers(0, 60))
def test_any_text_comes_back(text: str, merges: int) -> None:
    tokenizer = byte_level([TEXT], merges)
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False).input_ids)
    # Bytes of a character in several tokens are escaped.
    spelled = "".join(shown(tokens, "byte_level")).encode("utf-8")
    for byte in range(128, 256):
        spelled = spelled.replace(rb"\x%02x" % byte, bytes([byte]))
    if "\\x" not in text:
        assert spelled.decode() == text


def test_the_examples_of_the_guide() -> None:
    assert shown(["Hello", "Ġthere", "Ġthe", "ĠcafÃ©"]) == ["Hello", " there", " the", " café"]
    assert shown(["cafÃ©"]) == ["café"]


def test_special_tokens_stay() -> None:
    tokens = ["<s>", "<奶▁酪>", "Ġthere", "ĊĊ"]
    assert shown(tokens) == ["<s>", "<奶▁酪>", " there", "\n\n"]


def test_a_text_can_be_cut_within_a_character() -> None:
    tokenizer = byte_level([TEXT], 0)
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("奶 b 奶").input_ids)
    assert len(tokens) == 9
    assert shown(tokens[2:-1]) == [r"\xb6", " ", "b", " ", r"\xe5", r"\xa5"]


@pytest.mark.parametrize(
    "tokens",
    [
        ["naïve", "Über", "ñ", "£5"],
        [" there", "Ġthere"],  # a byte-level token has no space
        ["Ġorġ", "Ġimgħa"],  # Maltese
        ["дом", "奶酪", "🧀"],
    ],
)
def test_other_tokens_stay(tokens: list[str]) -> None:
    assert shown(tokens) == tokens


def test_what_is_read_can_be_chosen() -> None:
    assert shown(["Ġdid"]) == [" did"]
    assert shown(["Ġdid"], "text") == ["Ġdid"]
    assert shown(["Ġthere", "a b", "奶"], "byte_level") == [" there", "a b", "奶"]
    with pytest.raises(ValueError, match="decode: 'bytes' is unknown"):
        shown(["a"], "bytes")


def test_bytes_are_read_as_utf8() -> None:
    tokens: list[str | bytes] = [b"caf", "é".encode(), b" \xf0\x9f", b"\xa7\x80", "Ġ", b"\n"]
    assert shown(tokens) == ["caf", "é", r" \xf0\x9f", r"\xa7\x80", " ", "\n"]
    assert shown(tokens[:4]) == ["caf", "é", r" \xf0\x9f", r"\xa7\x80"]
