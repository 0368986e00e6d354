"""Tokenizers as files of Hugging Face: the same tokens in transformers, both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import AddedToken

from data.pieces import QWEN2
from exchange.spellings import oniguruma
from exchange.tokenizer import read_tokenizer, write_tokenizer
from tests.data.strings import NAMES, make, trained
from tests.exchange.fast import LETTERS, LONG, STRINGS, open_fast, small, split, train

LARGE = pytest.mark.long  # a vocabulary of 50,257 tokens
every_tokenizer = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=LARGE) if name == "gpt2" else name for name in NAMES]
)


@every_tokenizer
def test_transformers_gives_our_tokens(name: str, tmp_path: Path) -> None:
    tokenizer = make(name)
    write_tokenizer(tokenizer.of_text((), "\n\n"), tmp_path, LONG)
    fast = open_fast(tmp_path, "llama", split_special_tokens=True)
    found = fast(STRINGS, add_special_tokens=False)["input_ids"]
    for text, ids in zip(STRINGS, found, strict=True):
        assert ids == tokenizer.encode(text), ascii(text)
        assert fast.decode(ids) == tokenizer.decode(ids) == text
    assert fast.model_max_length == LONG


@every_tokenizer
def test_what_was_written_is_read_and_written_again(name: str, tmp_path: Path) -> None:
    tokenizer = make(name)
    tokenizer = tokenizer.of_text((), None if tokenizer.eos_ids else "\n\n")
    end = write_tokenizer(tokenizer, tmp_path, LONG)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": end}))
    again = read_tokenizer(tmp_path, tokenizer.vocab_size)
    marks = (tokenizer.bos_id, tokenizer.eos_ids) if tokenizer.eos_ids else (end, (end,))
    assert (again.bos_id, again.eos_ids) == (marks if end is not None else (None, ()))
    assert again.byte_pairs() == tokenizer.byte_pairs()
    assert [again.encode(text) for text in STRINGS] == [tokenizer.encode(t) for t in STRINGS]
    (tmp_path / "again").mkdir()
    assert write_tokenizer(again, tmp_path / "again", LONG) == end
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / file).read_bytes()


def test_qwens_own_tokenizer_is_run_as_it_came(tmp_path: Path) -> None:
    """It normalizes, and finds names that are not special."""
    metadata = json.loads(train(split(oniguruma(QWEN2)), special=("<|endoftext|>",)).to_str())
    merges = [tuple(pair) for pair in metadata["model"]["merges"]]
    base = transformers.Qwen2Tokenizer(vocab=metadata["model"]["vocab"], merges=merges)
    base.add_tokens([AddedToken("<|im_end|>", special=True)], special_tokens=True)
    base.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    base.save_pretrained(tmp_path)
    fast = transformers.AutoTokenizer.from_pretrained(tmp_path, split_special_tokens=True)
    tokenizer = read_tokenizer(tmp_path, 3000)
    assert tokenizer.eos_ids == (0,) and tokenizer.bos_id is None
    texts = [*STRINGS, "<think>e\u0301\u0338 <|im_end|><think>\u0338"]
    for text, ids in zip(texts, fast(texts)["input_ids"], strict=True):
        assert tokenizer.encode(text) == ids, ascii(text)
    (tmp_path / "again").mkdir()
    write_tokenizer(tokenizer, tmp_path / "again", LONG)
    again = open_fast(tmp_path / "again", "qwen3")
    assert again(texts)["input_ids"] == fast(texts)["input_ids"]


BEFORE = "<|end|> $A"
MARK = {"tokenizer_config": {"bos_token": "<|end|>", "eos_token": "<|end|>"}}
QWEN = {
    "tokenizer_config": {"bos_token": None, "eos_token": {"content": "<|end|>"}},
    "config": {"bos_token_id": 259, "eos_token_id": 7},
}
LLAMA3 = {
    "tokenizer_config": {"bos_token": "<|end|>", "eos_token": "abc"},
    "generation_config": {"eos_token_id": [7, 258]},
    "config": {"eos_token_id": 8},
}


@pytest.mark.parametrize(
    ("template", "files", "start", "ends"),
    [
        # GPT-2's own files, and those of a model that was saved without a tokenizer_config.json.
        ("", {"config": {"bos_token_id": 259, "eos_token_id": 259}}, 259, (259,)),
        ("", MARK, 259, (259,)),
        # No first token, and another id in config.json.
        ("", QWEN, None, (259, 7)),
        (BEFORE, LLAMA3, 259, (258, 7)),
        (BEFORE, {"tokenizer_config": {"bos_token": "<|end|>", "add_bos_token": False}}, 259, ()),
        # A mark between documents that begins every text.
        (BEFORE, MARK, 259, (259,)),
        # Ids that no token has are never generated.
        ("", {"config": {"bos_token_id": 50256, "eos_token_id": [50256, 299]}}, None, ()),
    ],
)
def test_the_ids_that_begin_and_end_documents(
    template: str, files: dict[str, Any], start: int | None, ends: tuple[int, ...], tmp_path: Path
) -> None:
    small(template).save(str(tmp_path / "tokenizer.json"))
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    tokenizer = read_tokenizer(tmp_path, 300)
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (start, ends)
    (tmp_path / "again").mkdir()
    assert write_tokenizer(tokenizer, tmp_path / "again", LONG) == (ends[0] if ends else None)
    fast = open_fast(tmp_path / "again")
    last = ends[0] if ends else LETTERS["ÿ"]  # a byte that no text contains
    assert (fast.eos_token_id, fast.pad_token_id, fast.unk_token_id) == (last,) * 3
    assert fast.bos_token_id == (start if ends or start is not None else last)
    added = [start] if tokenizer.adds_bos and start is not None else []
    assert fast("abc")["input_ids"] == [*added, 258]
    assert tokenizer.adds_bos == (template == BEFORE or start is None or start not in ends)
    again = read_tokenizer(tmp_path / "again", 300)
    assert (again.bos_id, again.adds_bos) == (start, tokenizer.adds_bos)


@pytest.mark.parametrize(
    ("kind", "model_type"),
    [("PreTrainedTokenizerFast", "llama"), ("GPT2Tokenizer", "gpt2"), ("Qwen2Tokenizer", "qwen3")],
)
@pytest.mark.parametrize("template", ["", BEFORE])
def test_the_first_token_is_that_of_transformers(
    template: str, kind: str, model_type: str, tmp_path: Path
) -> None:
    """`add_bos_token` changes nothing."""
    small(template).save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": "<|end|>", "tokenizer_class": kind, "add_bos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    fast = open_fast(tmp_path, model_type)
    tokenizer = read_tokenizer(tmp_path, 300)
    first = [tokenizer.bos_id] if tokenizer.adds_bos and tokenizer.bos_id is not None else []
    assert fast("abc")["input_ids"] == [*first, *tokenizer.encode("abc")]
    assert first == [259] * (template == BEFORE)


def test_the_end_of_a_document_is_a_special_token(tmp_path: Path) -> None:
    tokenizer = trained()
    (mark,) = tokenizer.encode("\n\n")
    assert write_tokenizer(tokenizer.of_text((), "\n\n"), tmp_path, 64) == mark
    fast = open_fast(tmp_path)
    assert fast.eos_token_id == fast.bos_token_id == mark and fast.eos_token == "ĊĊ"
    ids = fast("A hen.\n\nA hat.\n\n")["input_ids"]
    assert ids == tokenizer.encode("A hen.\n\nA hat.\n\n") and ids.count(mark) == 2
    assert fast.decode(ids) == "A hen.\n\nA hat.\n\n"
    assert fast.decode(ids, skip_special_tokens=True) == "A hen.A hat."
    # As trl ends a text.
    assert fast(f"A hen.{fast.eos_token}")["input_ids"] == tokenizer.encode("A hen.\n\n")


@every_tokenizer
def test_programs_find_a_token_for_every_role(name: str, tmp_path: Path) -> None:
    """Its name is text, unless a program asks otherwise; no text loses a token for it."""
    tokenizer = make(name)
    end = write_tokenizer(tokenizer.of_text((), None), tmp_path, LONG)
    fast = open_fast(tmp_path)
    last = [tokenizer.encoding.encode_single_token(b"\xff")] if end is None else [end]
    assert [fast.eos_token_id] == [fast.pad_token_id] == [fast.unk_token_id] == last
    assert fast.bos_token_id is not None
    text = f"L'Ha{fast.eos_token}-les-Roses\n\nĊ"
    assert fast.encode(text, add_special_tokens=False) == tokenizer.encode(text)
    assert fast.decode(tokenizer.encode(text), skip_special_tokens=True) == text
    fast.split_special_tokens = False
    ended = fast.encode(f"A{fast.eos_token}", add_special_tokens=False)
    assert ended == [*tokenizer.encode("A"), *last]
