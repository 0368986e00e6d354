"""What is not the same as here is refused by name, and strangers' files take no memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import transformers

from data.fast_tokenizer import read_fast, write_fast
from data.patterns import GPT2
from data.tokenizer import Tokenizer
from tests.data.fast import BYTES, LETTERS, LONG, added, save, small, template


def put(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """A change of one part; a path such as "model.vocab.ab"."""

    def change(about: Any) -> None:
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


@pytest.mark.parametrize("name", ["Ġend", "end", "ab", "<|>"])
def test_a_special_token_that_is_text_is_not_written(name: str, tmp_path: Path) -> None:
    encoding = tiktoken.Encoding(
        "any",
        pat_str=GPT2.tiktoken,
        mergeable_ranks={**BYTES, b"ab": 256},
        special_tokens={name: 257},
    )
    with pytest.raises(ValueError, match=r"^tokenizer\.json: .* is ordinary text"):
        write_fast(Tokenizer(encoding), tmp_path, LONG, None)
    assert list(tmp_path.iterdir()) == []


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
        (b"[" + b"1," * 10_000_000 + b"1]", "more than 2000000 values"),
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


@pytest.mark.parametrize("setting", ["add_prefix_space", "add_eos_token"])
def test_settings_that_add_to_a_text_are_refused(setting: str, tmp_path: Path) -> None:
    save(tmp_path, small())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({setting: True}))
    with pytest.raises(ValueError, match=f"^tokenizer_config.json: .*{setting}"):
        read_fast(tmp_path, 300)
