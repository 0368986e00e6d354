"""The tokens of the page, and the cells of patterns among them, are those of Python, whatever the
text."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import pytest
from tokenizers import normalizers

from common.errors import UserError
from data.tokenizer import Tokenizer
from exchange.imported import import_tokenizer
from live.tokenizer import character_classes, check_tokenizer, tokenizer_data
from tensorboard_attention.patterns import PATTERNS, Text
from tensorboard_attention.tokens import token_texts
from tests.data.strings import NAMES, SCRAPS, make, strings
from tests.exchange.fast import imported, sentence_piece
from tests.live.conftest import Call

ENCODE = """({ Tokenizer }, { data, texts }) => {
    const tokenizer = new Tokenizer(data);
    return texts.map((text) => tokenizer.encode(text));
}"""


def page_data(tokenizer: Tokenizer) -> dict[str, Any]:
    data = tokenizer_data(tokenizer)
    return {**data, "classes": character_classes(data["pattern"])}


def encoded(module: Call, tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    data = page_data(tokenizer)
    return module("tokenizer.js", ENCODE, {"data": data, "texts": texts})


def pieces_of_many_merges() -> list[str]:
    """Long ones, in which tokens of low ranks come out of merges of higher ones, and many repeats,
    where the order of merges matters."""
    rng = random.Random(1)
    texts = ["a" * n for n in range(1, 70)] + ["ab" * 500, "の" * 1000, " " * 3000, "\n" * 999]
    for letters in ("ab", "aet", "hentor", "abcdefghijklmnopqrstuvwxyz", "  \n"):
        texts += ["".join(rng.choices(letters, k=rng.randrange(1, 400))) for _ in range(100)]
    return texts


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_those_of_python(module: Call, name: str) -> None:
    tokenizer = make(name)
    check_tokenizer(tokenizer)
    texts = ["", *strings(2000), *pieces_of_many_merges()]
    found = encoded(module, tokenizer, texts)
    for text, tokens in zip(texts, found, strict=True):
        assert tokens == tokenizer.encode(text), ascii(text)


def test_names_of_tokens_are_found_in_text(module: Call) -> None:
    """Also those with characters that mean something in a pattern, beside parts of them."""
    names = ["<think>", "</think>", "<|a+b.c*|>", "[^$?(K)\\\\]", "<\uff5cUser\uff5c>", "<{1}/-:>"]
    tokenizer = imported(make("bpe"), in_text=names)
    check_tokenizer(tokenizer)
    ids = [tokenizer.encode(name)[0] for name in names]
    special = tokenizer.special_tokens
    rng = random.Random(3)
    scraps = [*names, *names, *special, *SCRAPS, "<think", "think>", "<", ">", "\u0338"]
    texts = ["".join(rng.choices(scraps, k=rng.randrange(12))) for _ in range(2000)]
    found = encoded(module, tokenizer, texts)
    assert found == [tokenizer.encode(text) for text in texts]
    assert {*ids} <= {token for tokens in found for token in tokens}
    made = module(
        "vocabulary.js",
        """({ Vocabulary }, { data, rows, ids }) => {
            const vocabulary = new Vocabulary({ tokenizer: data });
            const texts = rows.map((row) => vocabulary.decode(row, 0));
            return [texts, ids.map((id) => vocabulary.labels[id])];
        }""",
        {"data": page_data(tokenizer), "rows": found, "ids": [*ids]},
    )
    assert made == [texts, names]


@pytest.mark.parametrize(
    ("tokenizer", "words"),
    [
        (imported(make("byte"), normalizer=normalizers.NFC()), "form NFC: a live page cannot"),
        (imported(make("byte"), in_text=["think!"]), "finds 'think!' in a text"),
        (import_tokenizer(sentence_piece().to_str()), "not byte-level BPE: a live page"),
    ],
)
def test_what_a_page_cannot_encode_is_refused(tokenizer: Tokenizer, words: str) -> None:
    with pytest.raises(UserError, match=f"^run: the tokenizer .*{words}"):
        check_tokenizer(tokenizer)


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.long)])
def test_every_character_belongs_to_the_same_class(module: Call, step: int) -> None:
    """Between letters, digits and symbols: where a character is cut off tells its class."""
    tokenizer = make("pattern 0")
    codes = [*range(0x600), *range(0x600, 0xD800, step), *range(0xE000, 0x110000, step)]
    texts = ["".join(f"a{chr(code)}1{chr(code)}!" for code in codes[i::97]) for i in range(97)]
    for text, tokens in zip(texts, encoded(module, tokenizer, texts), strict=True):
        assert tokens == tokenizer.encode(text)


@pytest.mark.parametrize("name", ["bpe", "byte", "gpt2", "pattern 7"])
def test_labels_of_tokens(module: Call, name: str) -> None:
    """Also of odd bytes, which are escaped."""
    rng = random.Random(2)
    odd = ["é中😀".encode() + b"\xff", b"\\x41", b"\xef\xbb\xbfa", b"\xf4\x90\x80\x80"]
    odd += [
        bytes(rng.choices([0x41, 0x80, 0xBF, 0xC3, 0xE2, 0xED, 0xF0, 0xF4, 0xFF], k=6))
        for _ in range(500)
    ]
    tokenizer = make(name)
    spelled = [tokenizer.decode_bytes([id]) for id in range(min(3000, tokenizer.vocab_size))]
    spelled += odd
    tokens = [base64.b64encode(each).decode() for each in spelled]
    found = module(
        "tokenizer.js",
        """({ Tokenizer }, data) => {
            const tokenizer = new Tokenizer(data);
            return data.tokens.map((_, id) => tokenizer.label(id));
        }""",
        {**page_data(tokenizer), "tokens": tokens},
    )
    assert found == token_texts(spelled, None)


TALE = 'Once there was a cat. "Oh, a cat, a hen, there," said the cat. Oh, a hen said it was a hen'
TOKENS = [part for word in TALE.split() for part in (" ", word[:-1], word[-1]) if part]


CELLS = """({ PATTERNS }, tokens) => {
    const row = (is, q) => tokens.map((_, k) => k <= q && Boolean(is(tokens, q, k)));
    const cells = (is) => tokens.map((_, q) => row(is, q));
    return Object.entries(PATTERNS).map(([score, is]) => [score, cells(is)]);
}"""
WORDS = [" the", " hen", "the", " a", ".", ',"', "\n", " ", "é", "3", "\u202e", "🐔", " fox's"]
WORDS += ["می\u200c", "a\u00adb", "1️⃣2️⃣", "เมื่"]


def drawn(seed: int) -> list[str]:
    """Few words, of which passages come again."""
    random = np.random.default_rng(seed)
    words = random.choice(WORDS, int(random.integers(2, 6)), replace=False)
    return [str(each) for each in random.choice(words, int(random.integers(1, 40)))]


@pytest.mark.parametrize("tokens", [TOKENS, *map(drawn, range(30))])
def test_the_cells_are_those_that_are_measured(module: Call, tokens: list[str]) -> None:
    """The page and the tab outline the cells of the patterns that a head is named by."""
    ids = np.unique(tokens, return_inverse=True)[1]
    text, found = Text(ids, tokens, 0), dict(module("marks.js", CELLS, tokens))
    for pattern, cells in zip(PATTERNS, text.cells, strict=True):
        marked = np.flatnonzero(found.pop(pattern.name))
        assert np.array_equal(marked, cells), pattern.name
    assert not found
