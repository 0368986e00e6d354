"""Tokenizers as Hugging Face files: the same tokens both ways, or refused by name."""

from __future__ import annotations

import itertools
import json
import random
import tracemalloc
from collections.abc import Callable
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
from data.patterns import BYTE, GPT2, PATTERNS, QWEN2, SMOLLM, Pattern
from data.tokenizer import Tokenizer, fixed_tokenizer
from tests.data.strings import gpt2, patterned, strings, trained

STRINGS = strings(3000)
LONG = 1 << 20
PATTERNED = patterned()
MARKUP = ("<|endoftext|>", "<s>", "<think>")
NAMES = ["bpe", "byte", "gpt2", *PATTERNED]
BYTES = {bytes([byte]): byte for byte in range(256)}
LETTERS = {spell(token): rank for token, rank in BYTES.items()}


def make(name: str) -> Tokenizer:
    if name in PATTERNED:
        return PATTERNED[name]
    return {"bpe": trained, "byte": lambda: fixed_tokenizer("byte"), "gpt2": gpt2}[name]()


def open_fast(folder: Path, model_type: str = "gpt2") -> Any:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return transformers.AutoTokenizer.from_pretrained(folder)


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
    end = write_fast(tokenizer, tmp_path, LONG, "\n\n")
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
    merges = [tuple(spell(token[i : i + 1]) for i in (0, 1)) for token in ranks if len(token) == 2]
    vocabulary = {spell(token): rank for token, rank in ranks.items()}
    for spelling in (pattern.oniguruma, *pattern.spellings):
        fast = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
        fast.pre_tokenizer = split(spelling)
        codes = [code for code in range(0, 0x110000, step) if not 0xD800 <= code < 0xE000]
        for start in range(0, len(codes), 1000):
            block = [chr(code) for code in codes[start : start + 1000]]
            text = "".join(f"a{c}b  {c}1{c}\n'{c}!'l{c} 1" for c in block)
            assert fast.encode(text).ids == ours.encode_ordinary(text), (spelling, codes[start])


def split(spelling: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(spelling), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


letters = st.text("abc", min_size=2, max_size=5)


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
    for text in [*texts, *words, *map("".join, itertools.product("abc", repeat=5))]:
        assert fast.encode(text).ids == tokenizer.encode(text), text
    assert read_fast(folder, tokenizer.vocab_size).digest == tokenizer.digest


def test_merges_are_taken_only_if_they_give_the_same_tokens(tmp_path: Path) -> None:
    """Lists of merges at random: each is refused, or agrees on every text up to seven letters;
    most that are refused disagree."""
    rng = random.Random(0)
    texts = ["".join(each) for n in range(1, 8) for each in itertools.product("abc", repeat=n)]
    agreed, counts = 0, {"taken": 0, "refused": 0}
    for _ in range(150):
        tokens, merges = list("abc"), []
        while len(merges) < 5:
            left, right = rng.choices(tokens, k=2)
            if [left, right] not in merges:
                merges.append([left, right])
                tokens += [left + right] * (left + right not in tokens)
        extra = {token: 256 + i for i, token in enumerate(tokens[3:])}
        fast = tokenizers.Tokenizer(models.BPE({**LETTERS, **extra}, list(map(tuple, merges))))
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
# The newest digits, which only `Digits` knows.
NEWEST = {*map(chr, range(0x11DE0, 0x11DEA)), "\U00016ff4", "\U00016ff5", "\U00016ff6"}


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
    assert_same(fast, tokenizer, [each for each in STRINGS if not NEWEST & {*each}])
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


def save(folder: Path, about: object) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(about))


def small() -> dict[str, Any]:
    """The content of a `tokenizer.json` that is read."""
    vocabulary = {**LETTERS, "ab": 256, "Ġa": 257, "abc": 258, "<|end|>": 259}
    return {
        "added_tokens": [{"id": 259, "content": "<|end|>", "special": True}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel"},
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": [["a", "b"], ["Ġ", "a"], ["ab", "c"]],
        },
    }


def put(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """A change of one part; a path such as "model.vocab.ab"."""

    def change(about: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for parent in parents:
            about = about[int(parent) if parent.isdigit() else parent]
        if isinstance(about, list):
            about[int(last) : int(last) + 1] = [value]
        else:
            about[last] = value

    return change


def drop(path: str) -> Callable[[dict[str, Any]], None]:
    def change(about: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for parent in parents:
            about = about[parent]
        del about[last]

    return change


def template(*names: str, ids: object = (259,)) -> dict[str, Any]:
    """A post-processor with these special tokens, and "A" for the text."""
    kinds = {"A": "Sequence", "B": "Sequence"}
    return {
        "type": "TemplateProcessing",
        "single": [{kinds.get(each, "SpecialToken"): {"id": each, "type_id": 0}} for each in names],
        "pair": [],
        "special_tokens": {
            each: {"id": each, "ids": ids, "tokens": [each]} for each in names if each not in kinds
        },
    }


def added(content: object, token: object = 260, special: object = True) -> dict[str, Any]:
    return {"id": token, "content": content, "special": special}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
SPLIT = {
    "type": "Split",
    "pattern": {"Regex": GPT2.oniguruma},
    "behavior": "Isolated",
    "invert": False,
}


def sequence(*steps: object) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": [*steps]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("model.type", "Unigram"), "the model 'Unigram' is not BPE"),
        (put("model.type", "WordPiece"), "the model 'WordPiece' is not BPE"),
        (put("model.type", ["BPE"]), "the model a list is not BPE"),
        (put("model.byte_fallback", True), "byte_fallback"),
        (put("model.dropout", 0.1), "dropout 0.1"),
        (put("model.continuing_subword_prefix", "##"), "continuing_subword_prefix is '##'"),
        (put("model.end_of_word_suffix", "</w>"), "end_of_word_suffix is '</w>'"),
        (put("normalizer", {"type": "NFKC"}), "the normalizer 'NFKC'"),
        (
            put(
                "normalizer",
                {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]},
            ),
            "the normalizer 'Strip'",
        ),
        (put("normalizer", "NFC"), "normalizer is 'NFC'"),
        (put("pre_tokenizer", None), "the pre_tokenizer None is not ByteLevel"),
        (put("pre_tokenizer", {"type": "Metaspace"}), "the pre_tokenizer 'Metaspace'"),
        (put("pre_tokenizer.add_prefix_space", True), "add_prefix_space"),
        (put("pre_tokenizer.use_regex", False), "the pre_tokenizer has no pattern"),
        (put("pre_tokenizer", sequence(SPLIT, SPLIT, BYTE_LEVEL)), "'Split', 'Split', 'ByteLevel'"),
        (put("pre_tokenizer", sequence({**SPLIT, "behavior": "Removed"}, BYTE_LEVEL)), "'Removed'"),
        (put("pre_tokenizer", sequence({**SPLIT, "invert": True}, BYTE_LEVEL)), "'Isolated'"),
        (
            put("pre_tokenizer", sequence({**SPLIT, "pattern": {"Regex": "(a+)+$"}}, BYTE_LEVEL)),
            "the pattern '(a+)+$' of the pre_tokenizer is unknown",
        ),
        (
            put("pre_tokenizer", sequence({**SPLIT, "pattern": {"String": " "}}, BYTE_LEVEL)),
            "the pattern None",
        ),
        (put("pre_tokenizer", sequence({**SPLIT, "pattern": " "}, BYTE_LEVEL)), "pattern is ' '"),
        (
            put("pre_tokenizer", sequence({"type": "Digits"}, {**BYTE_LEVEL, "use_regex": True})),
            "'Digits', 'ByteLevel' is unknown",
        ),
        (put("pre_tokenizer", {"type": "Sequence", "pretokenizers": 7}), "pretokenizers is 7"),
        (put("decoder", None), "the decoder None is not ByteLevel"),
        (put("decoder", {"type": "Metaspace"}), "the decoder 'Metaspace'"),
        (put("post_processor", {"type": "BertProcessing"}), "the post_processor 'BertProcessing'"),
        (put("post_processor", template("A", "<|end|>")), "the post_processor adds"),
        (put("post_processor", template("<|end|>", "<|end|>", "A")), "the post_processor adds"),
        (put("post_processor", template("<|end|>", "A", ids=[1, 2])), "has no single id"),
        (put("post_processor", template("<|end|>", "A", ids=[5000])), "the unknown id 5000"),
        (put("model", []), "model is a list"),
        (put("model.vocab", []), "vocab is a list"),
        (put("model.merges", {}), "merges is an object"),
        (put("model.vocab.ab", -1), "the id -1 of 'ab'"),
        (put("model.vocab.ab", 10**30), "of 'ab' is not one of the model's 300"),
        (put("model.vocab.ab", 300), "the id 300 of 'ab' is not one of the model's 300"),
        (put("model.vocab.ab", 256.0), "the id 256.0 of 'ab'"),
        (put("model.vocab.ab", True), "the id True of 'ab'"),
        (put("model.vocab.ab", "256"), "the id '256' of 'ab'"),
        (put("model.vocab.ab", 3), "two tokens have the same id"),
        (put("model.vocab.中", 270), "does not stand for bytes"),
        (put("model.vocab", {"": 270, **LETTERS}), "is not in the vocabulary"),
        (drop("model.vocab.Ġ"), "is not in the vocabulary"),
        (drop("model.vocab.z"), "a single byte is missing"),
        (put("model.merges.0", ["a"]), "merge 0 is not a pair"),
        (put("model.merges.0", "a b c"), "merge 0 is not a pair"),
        (put("model.merges.0", [1, 2]), "merge 0 is not a pair"),
        (put("model.merges.0", ["a", "z"]), "merge 0, 'a' and 'z', is not in the vocabulary"),
        (put("model.merges", [["Ġ", "a"], ["a", "b"], ["ab", "c"]]), "the order of the ids"),
        (put("model.merges", [["a", "b"], ["Ġ", "a"]]), "'abc' does not follow from the merges"),
        (put("model.vocab.bc", 270), "'bc' does not follow from the merges"),
        (put("added_tokens", 7), "added_tokens is 7"),
        (put("added_tokens.0", "<|end|>"), "an added token is '<|end|>'"),
        (put("added_tokens.1", added("  ", special=False)), "'  ' is ordinary text"),
        (put("added_tokens.1", added("hello", special=False)), "'hello' is ordinary text"),
        (put("added_tokens.1", added("hello")), "'hello' is ordinary text"),
        (put("added_tokens.1", added("ab", 256, special=False)), "'ab' is ordinary text"),
        (put("added_tokens.1", added("")), "'' is ordinary text"),
        (put("added_tokens.1", added(None)), "None is ordinary text"),
        (put("added_tokens.1", added("<x>", 256)), "two tokens have the same id"),
        (put("added_tokens.1", added("<x>", 259)), "two tokens have the same id"),
        (put("added_tokens.1", added("<|end|>", 260)), "'<|end|>' has two ids"),
        (put("added_tokens.1", added("<x>", 10**9)), "the id 1000000000 of '<x>'"),
        (put("added_tokens.1", added("<x>", None)), "the id None of '<x>'"),
        (put("added_tokens.1", added("<\ud800x>")), r"'<\ud800x>' is not text"),
        (put("added_tokens.1", added("<" + "x" * 70_000 + ">")), "too many or too long"),
        (put("model.type", "a\x1b[31m\nb"), r"'a\x1b[31m\nb'"),
        (put("model.type", "x" * 10_000), "xxx'..."),
        (put("model.vocab." + "a" * 20_000, 270), "its tokens are too long"),
    ],
)
def test_what_is_not_the_same_is_refused_by_name(
    change: Callable[[dict[str, Any]], None], words: str, tmp_path: Path
) -> None:
    about = small()
    save(tmp_path, about)
    read_fast(tmp_path, 300)
    change(about)
    save(tmp_path, about)
    with pytest.raises(ValueError) as caught:
        read_fast(tmp_path, 300)
    message = str(caught.value)
    assert message.startswith("tokenizer.json: ") and words in message and len(message) < 250
    assert "; give a model whose tokenizer is plain byte-level BPE" in message
    assert message.isprintable()


def test_sentencepiece_is_refused(tmp_path: Path) -> None:
    transformers.LlamaTokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"^tokenizer\.json: .*Metaspace"):
        read_fast(tmp_path, 32_000)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"[]", "is not an object"),
        (b"[" * 20_000_000, "is nested too deeply"),
        (b'{"model":' * 2_000_000, "is nested too deeply"),
        (b"[" * 100_000_000, "more than 33554432 bytes"),
        (b"[" + b"1," * 10_000_000 + b"1]", "more than 4000000 values"),
        (b'{"model": ' + b"1" * 5000 + b"}", "cannot be read"),
        (None, "is missing"),
    ],
    ids=range(10),
)
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_files_that_lie_take_no_memory(
    name: str, content: bytes | None, words: str, tmp_path: Path
) -> None:
    save(tmp_path, small())
    if content is None:
        (tmp_path / name).unlink(missing_ok=True)
        if name != "tokenizer.json":
            assert read_fast(tmp_path, 300).ends == ()
            return
    else:
        (tmp_path / name).write_bytes(content)
    del content
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as caught:
            read_fast(tmp_path, 300)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(f"{name}: ") and words in str(caught.value)
    assert str(caught.value).isprintable() and peak < 150_000_000


@pytest.mark.parametrize("vocab_size", [0, -1, 10**12])
def test_a_model_of_absurd_size_is_refused(vocab_size: int, tmp_path: Path) -> None:
    save(tmp_path, small())
    with pytest.raises(ValueError, match=r"^vocab_size: .* out of range"):
        read_fast(tmp_path, vocab_size)


@pytest.mark.parametrize(
    ("post_processor", "files", "start", "ends"),
    [
        # GPT-2's own files, and those of a model that was saved without a tokenizer_config.json.
        (None, {"config": {"bos_token_id": 259, "eos_token_id": 259}}, 259, (259,)),
        (None, {"tokenizer_config": {"bos_token": "<|end|>", "eos_token": "<|end|>"}}, 259, (259,)),
        # Qwen's: no first token, and another id in config.json.
        (
            None,
            {
                "tokenizer_config": {"bos_token": None, "eos_token": {"content": "<|end|>"}},
                "config": {"bos_token_id": 259, "eos_token_id": 7},
            },
            None,
            (259, 7),
        ),
        # Llama 3's.
        (
            template("<|end|>", "A", ids=[259]),
            {
                "tokenizer_config": {"bos_token": "<|end|>", "eos_token": "abc"},
                "generation_config": {"eos_token_id": [7, 258]},
                "config": {"eos_token_id": 8},
            },
            259,
            (258, 7),
        ),
        (
            template("<|end|>", "A", ids=[259]),
            {"tokenizer_config": {"bos_token": "<|end|>", "add_bos_token": False}},
            None,
            (),
        ),
        (None, {"tokenizer_config": {"bos_token": "<|end|>", "add_bos_token": True}}, 259, ()),
        (template("A"), {}, None, ()),
        # Ids that no token has are never generated.
        (None, {"config": {"bos_token_id": 50256, "eos_token_id": [50256, 299]}}, None, ()),
        (None, {"generation_config": {"eos_token_id": "x"}}, None, ()),
        (None, {"tokenizer_config": {"bos_token": 3, "eos_token": ["<|end|>"]}}, None, ()),
    ],
)
def test_the_ids_that_begin_and_end_documents(
    post_processor: Any,
    files: dict[str, Any],
    start: int | None,
    ends: tuple[int, ...],
    tmp_path: Path,
) -> None:
    save(tmp_path, {**small(), "post_processor": post_processor})
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    tokenizer = read_fast(tmp_path, 300)
    assert (tokenizer.start, tokenizer.ends) == (start, ends)
    (tmp_path / "again").mkdir()
    assert write_fast(tokenizer, tmp_path / "again", LONG, None) == (ends[0] if ends else None)
    fast = open_fast(tmp_path / "again")
    assert fast.eos_token_id == (ends[0] if ends else None) and fast.bos_token_id == start
    first = [start] if start is not None and start not in ends else []
    assert fast("abc")["input_ids"] == [*first, 258]


@pytest.mark.parametrize("setting", ["add_prefix_space", "add_eos_token"])
def test_settings_that_add_to_a_text_are_refused(setting: str, tmp_path: Path) -> None:
    save(tmp_path, small())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({setting: True}))
    with pytest.raises(ValueError, match=f"^tokenizer_config.json: .*{setting}"):
        read_fast(tmp_path, 300)


def test_the_end_of_a_document_is_a_special_token(tmp_path: Path) -> None:
    tokenizer = trained()
    (mark,) = tokenizer.encode("\n\n")
    assert write_fast(tokenizer, tmp_path, 64, "\n\n") == mark
    fast = open_fast(tmp_path)
    assert fast.eos_token_id == fast.bos_token_id == mark and fast.eos_token == "ĊĊ"
    ids = fast("A hen.\n\nA hat.\n\n")["input_ids"]
    assert ids == tokenizer.encode("A hen.\n\nA hat.\n\n") and ids.count(mark) == 2
    assert fast.decode(ids) == "A hen.\n\nA hat.\n\n"
    assert fast.decode(ids, skip_special_tokens=True) == "A hen.A hat."
    assert mark not in fast("ĊĊ")["input_ids"]


@pytest.mark.parametrize(
    ("name", "document_end"), [("byte", "\n\n"), ("bpe", None), ("gpt2", "\n\n")]
)
def test_documents_that_do_not_end_with_one_token(
    name: str, document_end: str | None, tmp_path: Path
) -> None:
    """GPT-2's pattern cuts between two line ends that a word follows."""
    tokenizer = make(name)
    assert write_fast(tokenizer, tmp_path, 64, document_end) is None
    fast = open_fast(tmp_path)
    assert fast.eos_token is None and fast.bos_token is None
    if document_end:
        assert len(tokenizer.encode(f"A hen.{document_end}A hat.")[6:-6]) != 1


def test_gpt2_itself_is_read_and_written(tmp_path: Path) -> None:
    """As its own files: the tokens, their merges, and <|endoftext|> between documents."""
    tokenizer = gpt2()
    write_fast(tokenizer, tmp_path, 1024, None)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 1024}')
    (tmp_path / "config.json").write_text('{"bos_token_id": 50256, "eos_token_id": 50256}')
    again = read_fast(tmp_path, 50257)
    assert (again.start, again.ends) == (50256, (50256,)) and again.digest == tokenizer.digest
    about = json.loads((tmp_path / "tokenizer.json").read_text())
    assert not about["model"]["ignore_merges"] and len(about["model"]["merges"]) == 50000
    assert about["model"]["merges"][:3] == [["Ġ", "t"], ["Ġ", "a"], ["h", "e"]]
    assert write_fast(again, tmp_path, 1024, "\n\n") == 50256
    fast = open_fast(tmp_path)
    assert fast.eos_token == fast.bos_token == "<|endoftext|>"
    assert fast("Hello world<|endoftext|>")["input_ids"] == again.encode("Hello world<|endoftext|>")


def test_the_last_merge_is_found_in_any_order() -> None:
    ranks = {**BYTES, b"bc": 256, b"ab": 257, b"abc": 258, b"aa": 259, b"aaa": 260, b"xyz": 261}
    assert last_merge(b"ab", ranks) == (b"a", b"b")
    assert last_merge(b"abc", ranks) == (b"a", b"bc")
    assert last_merge(b"aaa", ranks) == (b"aa", b"a")
    assert last_merge(b"xyz", ranks) is None and last_merge(b"a", ranks) is None
