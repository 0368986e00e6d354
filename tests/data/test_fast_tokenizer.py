"""Tokenizers as Hugging Face files: the same tokens both ways."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from data.fast_tokenizer import read_fast, write_fast
from data.merges import last_merge, spell
from data.nfc import nfc
from data.patterns import BYTE, GPT2, LLAMA3, PATTERNS, QWEN2, SMOLLM, Pattern
from data.tokenizer import Tokenizer
from tests.data.fast import BYTES, LETTERS, LONG, open_fast, save
from tests.data.strings import NAMES, make, strings

"""Tokenizers as Hugging Face files: the same tokens both ways, or refused by name."""

STRINGS = strings(3000)
MARKUP = ("<|endoftext|>", "<s>", "<think>")


def written(tokenizer: Tokenizer, text: str) -> str:
    return nfc(text) if tokenizer.normalizer else text


@pytest.mark.parametrize("name", NAMES)
def test_transformers_gives_our_tokens(name: str, tmp_path: Path) -> None:
    tokenizer = make(name)
    write_fast(tokenizer, tmp_path, LONG, "\n\n")
    fast = open_fast(tmp_path)
    found = fast(STRINGS, add_special_tokens=False)["input_ids"]
    for text, ids in zip(STRINGS, found, strict=True):
        assert ids == tokenizer.encode(text), ascii(text)
        assert fast.decode(ids) == tokenizer.decode(ids) == written(tokenizer, text)
    assert fast.model_max_length == LONG


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model_type", ["gpt2", "llama", "qwen3"])
def test_the_type_of_the_model_does_not_matter(name: str, model_type: str, tmp_path: Path) -> None:
    tokenizer = make(name)
    write_fast(tokenizer, tmp_path, LONG, None)
    fast = open_fast(tmp_path, model_type)
    found = fast(STRINGS[:300], add_special_tokens=False)["input_ids"]
    assert found == [tokenizer.encode(text) for text in STRINGS[:300]]


@pytest.mark.parametrize("name", NAMES)
def test_reading_what_was_written_changes_nothing(name: str, tmp_path: Path) -> None:
    tokenizer = make(name)
    end = write_fast(tokenizer, tmp_path, LONG, None if tokenizer.ends else "\n\n")
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": end}))
    again = read_fast(tmp_path, tokenizer.vocab_size)
    assert again.digest == tokenizer.digest and again.vocab_size == tokenizer.vocab_size
    if tokenizer.ends:
        assert (again.start, again.ends) == (tokenizer.start, tokenizer.ends)
    else:
        assert (again.start, again.ends) == ((None, ()) if end is None else (end, (end,)))
    (tmp_path / "again").mkdir()
    assert write_fast(again, tmp_path / "again", LONG, None) == end
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / file).read_bytes()
    again.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert [loaded.encode(text) for text in STRINGS] == [tokenizer.encode(t) for t in STRINGS]


@pytest.mark.parametrize(
    "step", [101, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"]
)
@pytest.mark.parametrize("number", range(len(PATTERNS)))
def test_both_engines_cut_at_every_character_alike(number: int, step: int) -> None:
    """With a token for every pair of bytes, a piece that ends elsewhere has other tokens."""
    if PATTERNS[number] is BYTE:
        return  # it has no pattern there
    ranks = BYTES | {
        bytes(pair): 256 + i for i, pair in enumerate(itertools.product(range(256), repeat=2))
    }
    pattern = PATTERNS[number]
    ours = tiktoken.Encoding(
        "pairs", pat_str=pattern.tiktoken, mergeable_ranks=ranks, special_tokens={}
    )
    merges = [(spell(t[:1]), spell(t[1:])) for t in ranks if len(t) == 2]
    vocabulary = {spell(token): rank for token, rank in ranks.items()}
    for spelling in (pattern.oniguruma, *pattern.spellings):
        fast = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
        fast.pre_tokenizer = split(spelling)
        codes = [code for code in range(0, 0x110000, step) if not 0xD800 <= code < 0xE000]
        for start in range(0, len(codes), 1000):
            block = [chr(code) for code in codes[start : start + 1000]]
            text = "".join(f"a{c}b  {c}1{c}\n'{c}!'l{c} 1" for c in block)
            assert fast.encode(text).ids == ours.encode_ordinary(text), (spelling, codes[start])


def test_digits_are_cut_alike_everywhere() -> None:
    ours = split(SMOLLM.oniguruma)
    letters = [chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    for start in range(0, len(letters), 1000):
        text = "".join(f"a {each}{each} " for each in letters[start : start + 1000])
        assert ours.pre_tokenize_str(text) == DIGITS.pre_tokenize_str(text), start


def split(spelling: str, behavior: str = "isolated") -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(spelling), behavior, behavior == "removed"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


letters = st.text("abc", min_size=2, max_size=5)


@pytest.mark.long
@given(
    words=st.lists(letters, unique=True, max_size=12),
    texts=st.lists(st.text("abc", max_size=40), min_size=20, max_size=20),
)
@settings(max_examples=150, deadline=None)
def test_any_ranks_become_merges(words: list[str], texts: list[str], tmp_path_factory: Any) -> None:
    """Also those that no training gives: parts after the whole, and tokens that have none."""
    ranks = BYTES | {word.encode(): 256 + i for i, word in enumerate(words)}
    tokenizer = Tokenizer(
        tiktoken.Encoding("any", pat_str=GPT2.tiktoken, mergeable_ranks=ranks, special_tokens={})
    )
    folder = tmp_path_factory.mktemp("any")
    write_fast(tokenizer, folder, LONG, None)
    fast = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    long = "".join(random.Random(len(words)).choices("abc", k=1000))
    for text in [*texts, *words, long, *map("".join, itertools.product("abc", repeat=5))]:
        assert fast.encode(text).ids == tokenizer.encode(text), text
    assert read_fast(folder, tokenizer.vocab_size).digest == tokenizer.digest


@pytest.mark.long
def test_merges_are_taken_only_if_they_give_the_same_tokens(tmp_path: Path) -> None:
    """Lists of merges at random: each is refused, or agrees on every text up to seven letters;
    most that are refused disagree."""
    rng = random.Random(0)
    texts = ["".join(each) for n in range(1, 8) for each in itertools.product("abc", repeat=n)]
    agreed, counts = 0, {"taken": 0, "refused": 0}
    for _ in range(150):
        tokens: list[str] = list("abc")
        merges: list[tuple[str, str]] = []
        while len(merges) < 5:
            left, right = rng.choices(tokens, k=2)
            if (left, right) not in merges:
                merges.append((left, right))
                tokens += [left + right] * (left + right not in tokens)
        extra = {token: 256 + i for i, token in enumerate(tokens[3:])}
        fast = tokenizers.Tokenizer(models.BPE({**LETTERS, **extra}, merges))
        fast.pre_tokenizer, fast.decoder = bytes_alone(True), decoders.ByteLevel()
        fast.save(str(tmp_path / "tokenizer.json"))
        encoding = tiktoken.Encoding(
            "any",
            pat_str=GPT2.tiktoken,
            mergeable_ranks={**BYTES, **{token.encode(): rank for token, rank in extra.items()}},
            special_tokens={},
        )
        same = all(fast.encode(text).ids == encoding.encode_ordinary(text) for text in texts)
        try:
            read_fast(tmp_path, 256 + len(extra))
        except ValueError as error:
            assert "merges" in str(error)
            counts["refused"] += 1
            agreed += same
        else:
            assert same, merges
            counts["taken"] += 1
    assert min(counts.values()) > 20 and agreed < counts["refused"] / 4


def bytes_alone(use_regex: bool) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_alone(True)])


def train(pre_tokenizer: Any, normalizer: Any = None, special: tuple[str, ...] = MARKUP) -> Any:
    """A tokenizer that `tokenizers` has trained on half of the strings."""
    fast = tokenizers.Tokenizer(models.BPE())
    fast.pre_tokenizer, fast.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer:
        fast.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=[*special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(STRINGS[1::2], trainer)
    fast.encode_special_tokens = True
    return fast


def assert_same(fast: Any, tokenizer: Tokenizer, texts: list[str] = STRINGS) -> None:
    for text, each in zip(texts, fast.encode_batch(texts, add_special_tokens=False), strict=True):
        assert tokenizer.encode(text) == each.ids, ascii(text)
        assert tokenizer.decode(each.ids) == written(tokenizer, text)


@pytest.mark.parametrize("normalizer", [None, normalizers.NFC(), normalizers.Sequence([])])
@pytest.mark.parametrize(
    ("pre_tokenizer", "pattern"),
    [
        (bytes_alone(True), GPT2),
        (DIGITS, SMOLLM),
        (split(LLAMA3.oniguruma, "removed"), LLAMA3),  # with what matches kept
        *((split(each), pattern) for pattern in PATTERNS for each in pattern.spellings),
        *((split(pattern.oniguruma), pattern) for pattern in PATTERNS if pattern is not BYTE),
    ],
    ids=str,
)
def test_what_tokenizers_has_trained_is_read(
    pre_tokenizer: Any, pattern: Pattern, normalizer: Any, tmp_path: Path
) -> None:
    fast = train(pre_tokenizer, normalizer)
    fast.save(str(tmp_path / "tokenizer.json"))
    tokenizer = read_fast(tmp_path, 2000)
    assert tokenizer.vocab_size == 2000 and tokenizer._encoding._pat_str == pattern.tiktoken
    assert len(tokenizer._encoding._mergeable_ranks) > 1000
    assert_same(fast, tokenizer)
    write_fast(tokenizer, tmp_path, LONG, None)
    again = open_fast(tmp_path)
    assert_same(again._tokenizer, tokenizer)


def parts_of(fast: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    model = json.loads(fast.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


@pytest.mark.parametrize(
    ("kind", "pre_tokenizer"),
    [
        (transformers.GPT2Tokenizer, bytes_alone(True)),
        (transformers.Qwen2Tokenizer, split(QWEN2.oniguruma)),
    ],
)
def test_what_transformers_has_saved_is_read(kind: Any, pre_tokenizer: Any, tmp_path: Path) -> None:
    vocabulary, merges = parts_of(train(pre_tokenizer, special=MARKUP[:1]))
    made = kind(vocab=vocabulary, merges=merges, split_special_tokens=True)
    made.save_pretrained(tmp_path)
    tokenizer = read_fast(tmp_path, len(vocabulary))
    assert_same(made._tokenizer, tokenizer)
    assert tokenizer.normalizer == ("NFC" if kind is transformers.Qwen2Tokenizer else None)
    assert tokenizer.ends == (0,)
    assert tokenizer.start == (0 if kind is transformers.GPT2Tokenizer else None)


def test_the_oldest_form_of_a_file_is_read(tmp_path: Path) -> None:
    """GPT-2's own: merges as text, no type, prefixes that are empty."""
    fast = train(bytes_alone(True))
    about = json.loads(fast.to_str())
    model = about["model"]
    del model["type"], model["byte_fallback"], model["ignore_merges"]
    model["merges"] = [" ".join(pair) for pair in model["merges"]]
    model["continuing_subword_prefix"] = model["end_of_word_suffix"] = ""
    del about["pre_tokenizer"]["use_regex"]
    about["post_processor"] = {**about["pre_tokenizer"], "add_prefix_space": True}
    save(tmp_path, about)
    tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert_same(fast, read_fast(tmp_path, 2000))


def test_the_last_merge_is_found_in_any_order() -> None:
    ranks = {**BYTES, b"bc": 256, b"ab": 257, b"abc": 258, b"aa": 259, b"aaa": 260, b"xyz": 261}
    assert last_merge(b"ab", ranks) == (b"a", b"b")
    assert last_merge(b"abc", ranks) == (b"a", b"bc")
    assert last_merge(b"aaa", ranks) == (b"aa", b"a")
    assert last_merge(b"xyz", ranks) is None and last_merge(b"a", ranks) is None
