"""Tokenizers that came with a model: run as they came, and their merges for other programs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from common.errors import UserError
from data.pieces import BYTE, GPT2, LLAMA3, PATTERNS, SMOLLM
from data.tokenizer import ImportedTokenizer, Limits, StreamDecoder, Tokenizer
from exchange.imported import first_token, import_tokenizer
from exchange.merges import spell
from exchange.spellings import SPELLINGS, oniguruma
from tests.exchange.fast import STRINGS, add_names, bytes_alone, sentence_piece, small, split, train

DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_alone(True)])
NAMES = ["<tool>", "</tool>", "[K]"]


def made(fast: Any, **more: Any) -> ImportedTokenizer:
    return import_tokenizer(fast.to_str(), Limits(**more))


@pytest.mark.parametrize("normalizer", [None, normalizers.NFC()], ids=str)
@pytest.mark.parametrize("pre_tokenizer", [bytes_alone(True), split(r"\p{L}+|\P{L}+")], ids=str)
def test_byte_level_tokens_are_the_bytes_of_their_text(normalizer: Any, pre_tokenizer: Any) -> None:
    fast = add_names(train(pre_tokenizer, normalizer), *NAMES)
    tokenizer = made(fast, vocab_size=2000)
    for text in [*STRINGS, "".join(f"a{name}\u0338 {name}b" for name in NAMES)]:
        ids = tokenizer.encode(text)
        assert ids == fast.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode_array(text).tolist() == ids
        assert tokenizer.decode(ids) == fast.decode(ids)
        if not normalizer:
            assert tokenizer.decode(ids) == text
            assert tokenizer.token_bytes[ids].sum() == len(text.encode())
    for name in NAMES:
        assert tokenizer.encode(name) == [fast.token_to_id(name)]


def test_a_special_token_is_text_and_a_lone_surrogate_is_replaced() -> None:
    tokenizer = made(train(bytes_alone(True)))
    assert tokenizer.special_tokens == {"<|endoftext|>": 0, "<s>": 1, "<think>": 2}
    assert len(tokenizer.encode("<s>")) > 1 and tokenizer.decode([1]) == ""
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


def test_tokens_of_sentencepiece_are_the_bytes_of_their_text() -> None:
    fast = sentence_piece()
    fast.encode_special_tokens = True
    tokenizer = made(fast)
    for text in ["a hen had a hat", "def f():\n    a  b   <tool> end", *STRINGS]:
        ids = tokenizer.encode(text)
        assert ids == fast.encode(text, add_special_tokens=False).ids
        written = " " + text  # one space begins a text
        assert tokenizer.decode(ids) == written
        assert tokenizer.token_bytes[ids].sum() == len(written.encode())
        assert written == " " + fast.decode(ids, skip_special_tokens=False)
    stream = StreamDecoder(tokenizer)
    assert "".join(map(stream.feed, tokenizer.encode("中😀"))) == " 中😀"


def test_every_token_has_the_bytes_to_which_the_library_decodes_it() -> None:
    """Whatever its name: the alphabet of byte-level BPE in an added one, another space, bytes
    without a fallback, and a special one that the model makes of a text."""
    levels = add_names(train(bytes_alone(True)), "\u0120a", "caf é", "中")
    pieced = sentence_piece()  # whose normalizer changes the added name, too
    pieced.add_tokens([AddedToken("\u2581" * 2, normalized=True)])
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("_", -3.0), ("_a", -2.0), ("a", -4.0), ("__", -2.5)]
    unigram = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0))
    unigram.normalizer = normalizers.Replace(" ", "_")
    unigram.decoder = decoders.Sequence([decoders.Replace("_", " "), decoders.Fuse()])
    unigram.add_special_tokens(["<unk>", "<s>"])
    add_names(unigram, "___", "<0x41>")
    texts = {levels: "x\u0120a caf é中", pieced: "a    b", unigram: "a  a <s>a   a<0x41>"}
    for fast, text in texts.items():
        tokenizer, letter = made(fast), fast.token_to_id("a")
        for name, token in fast.get_vocab().items():
            if name not in tokenizer.special_tokens:
                ids = [letter, token, letter]
                assert tokenizer.decode(ids) == fast.decode(ids, skip_special_tokens=False), name
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids).strip() == fast.decode(ids, skip_special_tokens=False)
    assert tokenizer.decode(ids) == text and list(tokenizer.special_tokens) == ["<unk>"]


@pytest.mark.parametrize("fast", [train(bytes_alone(True)), sentence_piece()], ids=["bytes", "sp"])
def test_a_saved_tokenizer_loads_unchanged(fast: Any, tmp_path: Path) -> None:
    tokenizer = made(fast, vocab_size=3000, bos_id=1, adds_bos=False, eos_ids=(0, 5))
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.digest == tokenizer.digest and loaded.name == "hugging_face"
    assert (loaded.vocab_size, loaded.bos_id, loaded.adds_bos) == (3000, 1, False)
    assert loaded.eos_ids == (0, 5) and loaded.with_eos() is loaded
    assert loaded.encode(STRINGS[0]) == tokenizer.encode(STRINGS[0])
    other = made(fast, vocab_size=3001)
    assert other.digest != tokenizer.digest
    (tmp_path / "hugging_face.json").write_text("{}")
    with pytest.raises(UserError, match=r"hugging_face.json is damaged"):
        Tokenizer.load(tmp_path)


def test_other_decoders_are_refused() -> None:
    fast = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    fast.decoder = decoders.WordPiece()
    with pytest.raises(ValueError, match=r"^tokenizer.json: the decoder WordPiece is neither"):
        made(fast)
    with pytest.raises(ValueError, match=r"^tokenizer.json: cannot be read"):
        import_tokenizer("{")


@pytest.mark.parametrize("template", ["$A <|end|>", "<|end|> <|end|> $A"])
def test_several_tokens_around_a_text_are_refused(template: str) -> None:
    with pytest.raises(ValueError, match="post_processor"):
        first_token(made(small(template)))


@pytest.mark.parametrize(
    ("pre_tokenizer", "pattern"),
    [
        (bytes_alone(True), GPT2),
        (DIGITS, SMOLLM),
        (split(oniguruma(LLAMA3), "removed"), LLAMA3),  # with what matches kept
        *((split(each), pattern) for pattern in PATTERNS for each in SPELLINGS.get(pattern, ())),
        *((split(oniguruma(pattern)), pattern) for pattern in PATTERNS if pattern is not BYTE),
    ],
    ids=str,
)
def test_byte_pairs_give_the_same_tokens_in_tiktoken(pre_tokenizer: Any, pattern: str) -> None:
    fast = train(pre_tokenizer)
    pairs = made(fast).byte_pairs()
    assert pairs.pattern == pattern
    assert pairs.special == {"<|endoftext|>": 0, "<s>": 1, "<think>": 2}
    encoding = tiktoken.Encoding(
        "pairs", pat_str=pattern, mergeable_ranks={**pairs.ranks}, special_tokens={}
    )
    for text, found in zip(STRINGS, fast.encode_batch(STRINGS), strict=True):
        assert found.ids == encoding.encode_ordinary(text), ascii(text)


@pytest.mark.parametrize(
    ("fast", "message"),
    [
        (sentence_piece(), "not byte-level BPE"),
        (train(split(r"\d|\D+")), "pattern"),
        (train(pre_tokenizers.ByteLevel(add_prefix_space=True)), "pattern"),
        (train(bytes_alone(True), normalizers.NFKC()), "changes a text"),
        (add_names(train(bytes_alone(True)), "[K]", single_word=True), "changes a text"),
        (add_names(small(), "ab"), "do not follow"),  # its merges also make the name
    ],
)
def test_what_only_the_library_can_do_has_no_byte_pairs(fast: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(fast).byte_pairs()


@pytest.mark.parametrize(
    ("fast", "name", "cuts"),
    [
        (train(split(oniguruma(LLAMA3))), "\n\n", True),
        (train(DIGITS, normalizers.NFC()), "hens", True),
        (train(bytes_alone(True)), "a b", False),
        (train(split(r".{1,3}")), "<think>", False),
        (sentence_piece(), "<think>", False),
    ],
)
def test_which_tokenizers_cut_a_text_at_its_spaces(fast: Any, name: str, cuts: bool) -> None:
    tokenizer = made(add_names(fast, name))
    texts = ["a b", "s a", "1 2", "a\n\nb c", "x's a b", *STRINGS[:600:2]]
    words = [map(tokenizer.encode, re.split(r"(?<=\S)(?= )", text)) for text in texts]
    joined = [[*itertools.chain(*ids)] for ids in words]
    is_same = joined == [tokenizer.encode(text) for text in texts]
    assert tokenizer.cuts_at_spaces == is_same == cuts


@pytest.mark.parametrize("step", [509, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("pattern", [each for each in PATTERNS if each is not BYTE], ids=str)
def test_both_engines_cut_at_every_character_alike(pattern: str, step: int) -> None:
    """With a token for every pair of bytes, a piece that ends elsewhere has other tokens."""
    tokens = (itertools.product(range(256), repeat=length) for length in (1, 2))
    ranks = {bytes(token): rank for rank, token in enumerate(itertools.chain(*tokens))}
    ours = tiktoken.Encoding("pairs", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    merges = [(spell(t[:1]), spell(t[1:])) for t in ranks if len(t) == 2]
    vocabulary = {spell(token): rank for token, rank in ranks.items()}
    for spelling in (oniguruma(pattern), *SPELLINGS.get(pattern, ())):
        fast = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
        fast.pre_tokenizer = split(spelling)
        codes = [code for code in range(0, 0x110000, step) if not 0xD800 <= code < 0xE000]
        for start in range(0, len(codes), 1000):
            block = [chr(code) for code in codes[start : start + 1000]]
            text = "".join(f"a{c}b  {c}1{c}\n'{c}!'l{c} 1" for c in block)
            assert fast.encode(text).ids == ours.encode_ordinary(text), (spelling, codes[start])
