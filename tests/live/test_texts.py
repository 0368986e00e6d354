"""The texts of a page: whole documents of the validation split, or passages that begin with one.
Their tokens, and the cells of patterns among these, are those of Python."""

from __future__ import annotations

import base64
import random
import re
from typing import Any

import numpy as np
import pytest
from tokenizers import normalizers

from common.errors import UserError
from data.corpus import text_of
from data.floor import floor_of
from data.tales import Tales, TalesConfig
from data.tales_grammar import BOYS, GIRLS
from data.tokenizer import Tokenizer
from exchange.imported import import_tokenizer
from live.texts import N_TEXTS, page_texts
from live.tokenizer import character_classes, check_tokenizer, tokenizer_data
from tensorboard_attention.patterns import PATTERNS, Text
from tensorboard_attention.tokens import token_texts
from tests.data.strings import NAMES, SCRAPS, make, strings, trained
from tests.exchange.fast import imported, sentence_piece
from tests.live.conftest import Call

LENGTH = 1000
TALES = Tales(TalesConfig("tales", n_bytes=60_000, seed=3, val_fraction=0.3))


def test_examples_are_tales_up_to_a_name_and_the_end_of_a_passage_that_come_again() -> None:
    held_out = "".join(text_of(TALES, "val")).strip().split("\n\n")[:N_TEXTS]
    found = page_texts(TALES, np.zeros(1, np.uint16), trained(), LENGTH)
    named, repeating = found["examples"].values()
    assert [*found["examples"]] == ["a repeated name", "a repeated passage"]
    names = {*GIRLS, *BOYS}

    def following(text: str) -> str:
        """The word that comes next in the tale that begins with a text."""
        (tale,) = (tale for tale in held_out if tale.startswith(f"{text} "))
        return re.findall(r"\w+", tale[len(text) :])[0]

    assert following(named) in names
    assert len(re.findall(rf"\b{following(named)}\b", named)) >= 3
    words = [*re.findall(r"\w+", repeating), following(repeating)]
    assert words[-5:] in [words[at : at + 5] for at in range(len(words) - 9)]
    assert len(re.findall(following(found["prompt"]), found["prompt"])) >= 2


def test_what_a_perfect_reader_says_of_these_texts() -> None:
    """Each token, and what can come after it: of a run on tales, and of no other."""
    tokenizer = trained().of_text((), "\n\n")
    found = page_texts(TALES, np.zeros(1, np.uint16), tokenizer, LENGTH)
    assert [*found["reader"]] == [found["prompt"], *found["examples"].values()]
    for text, places in found["reader"].items():
        floor = floor_of(tokenizer.encode_document(text), tokenizer)
        assert [nats for nats, _ in places] == pytest.approx(floor.nats.tolist(), abs=1e-4)
        for (_, shown), chances in zip(places, floor.next_tokens, strict=True):
            likely = {token: chance for token, chance in chances.items() if chance >= 0.001}
            assert dict(shown) == pytest.approx(likely, abs=1e-4)
            assert [p for _, p in shown] == sorted((p for _, p in shown), reverse=True)
    assert page_texts(None, None, tokenizer, LENGTH)["reader"] == {}


LINES = "of a verse, in which Anna and the old boatman Karl met the other Anna again, {i} times;\n"
PROSE = "On day {i} they saw Anna, and then Anna again. Was it she? On the hill Anna slept. "


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("ne is cut.\n\n" + (LINES * 3 + "\n") * 20, "\n\n"),
        ("ne is cut.\n" + LINES * 90, "\n"),
        ("ntence is cut. " + PROSE * 90, r"[.?] "),
        ("rd is cut " + "and Anna met Anna and " * 90, " "),
    ],
)
def test_passages_of_a_text_begin_with_a_part_of_it(text: str, before: str) -> None:
    numbers = iter(range(1000))
    text = re.sub(re.escape("{i}"), lambda _: str(next(numbers)), text)
    tokenizer = trained()
    tokenizer.document_end = None
    tokens = np.array(tokenizer.encode(text), np.uint16)
    found = page_texts(None, tokens, tokenizer, 120)
    for part in (found["prompt"], *found["examples"].values()):
        starts = [match.end() for match in re.finditer(before, text)]
        places = [at for at in starts if text.startswith(part, at)]
        assert part and places, part
        after = text[places[0] + len(part)]
        assert not (part[-1].isalnum() and after.isalnum()), "it ends with a word"
        assert len(tokenizer.encode(part)) <= 120
    assert "Anna" in found["examples"]["a repeated name"]
    assert len(tokenizer.encode(found["prompt"])) <= 60


def test_documents_are_cut_at_their_ends_alone() -> None:
    tokenizer = trained().with_eos()
    tokenizer.document_end = None
    (end,) = tokenizer.eos_ids
    documents = [f"Document {i} is about Anna{', and about Anna' * i}." for i in range(9)]
    tokens = [id for text in documents for id in (*tokenizer.encode(text), end)]
    found = page_texts(None, np.array(tokens[:-9], np.uint16), tokenizer, 90)
    for text in (*found["examples"].values(), found["prompt"]):
        following = rf"{re.escape(text)} (Anna|and|about)\b"
        assert any(re.match(following, each) for each in documents)


def test_the_first_document_begins_with_its_first_whole_word() -> None:
    """The split can begin in the middle of one."""
    tokenizer = trained().with_eos()
    tokenizer.document_end = None
    parts = ["rd … Anna saw the boat.\n"] * 3
    tokens = [id for part in parts for id in (*tokenizer.encode(part), *tokenizer.eos_ids)]
    found = page_texts(None, np.array(tokens, np.uint16), tokenizer, 200)
    assert found["prompt"] == "… Anna saw the boat."


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
    """Between letters, digits and symbols: where the text is divided shows the class."""
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
