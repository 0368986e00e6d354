"""Documents of text files: what is read, and which split it belongs to."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import open_corpus
from data.decoding import BLOCK
from data.encoding import Dataset
from data.text import TextConfig, divided
from data.tokenizer import Limits, Tokenizer, TokenizerConfig, fixed_tokenizer
from data.tokens import prepare
from launch.schema import preset
from tests.data.conftest import BYTE, documents, draw_texts, write_files


def config(path: Path | str, **settings: object) -> TextConfig:
    return preset("data", "text", path=str(path), **settings)


def read(path: Path | str, cache: Path, **settings: object) -> Dataset:
    return prepare(open_corpus(config(path, **settings)), BYTE, cache, 8)


def test_files_are_documents_in_sorted_order(tmp_path: Path) -> None:
    texts = draw_texts(300)
    dataset = read(write_files(tmp_path / "a", texts), tmp_path / "cache")
    for split in ("train", "val"):
        found = documents(dataset, split)
        assert found == [text for text in texts if text in {*found}]
    assert len(documents(dataset, "train")) + len(documents(dataset, "val")) == 300
    n_val = len(documents(dataset, "val"))
    assert dataset.report and dataset.report.startswith("300 documents, ")
    assert dataset.report.endswith(f"; {n_val} documents for validation")


def test_a_separator_divides_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n\n\ntwo is longer\n\nthree\nlines\n\n" * 9)
    dataset = read(tmp_path / "a.txt", tmp_path / ".cache", separator=r"\n\n", val_fraction=0.5)
    found = documents(dataset, "train") + documents(dataset, "val")
    assert sorted(found) == ["one"] * 9 + ["three\nlines"] * 9 + ["two is longer"] * 9


@given(text=st.text("a|é", max_size=30), cuts=st.lists(st.integers(0, 30), max_size=12).map(sorted))
def test_a_separator_is_found_in_parts_of_any_size(text: str, cuts: list[int]) -> None:
    edges = [0, *cuts, 30]
    parts = [text[start:stop] for start, stop in itertools.pairwise(edges)]
    for separator in ("|||", "|", "a|"):
        found = list(divided(filter(None, parts), separator))
        assert found == [each for each in text.split(separator) if each]


def test_the_tokens_depend_on_what_ends_a_document(tmp_path: Path) -> None:
    """Also of tokenizers that give the same tokens for every text."""
    folder = write_files(tmp_path / "a", draw_texts(50))
    byte = fixed_tokenizer("byte")
    for end in (7, 8, None):
        limits = Limits(adds_bos=False, eos_ids=() if end is None else (end,))
        tokenizer = Tokenizer(byte.encoding, limits)
        found = prepare(open_corpus(config(folder)), tokenizer, tmp_path / "c", 8)
        last = found.train[-2:].tolist()
        assert last == [10, 10] if end is None else last[1] == end


def test_files_that_are_not_utf8_to_their_end_are_skipped_and_named(tmp_path: Path) -> None:
    others = {
        "0.txt": b"caf\xe9",
        "1.png": b"\x89PNG\0",
        "late.txt": b"Once. " * (BLOCK // 5) + b"\xff",
        "cut.txt": b"Once. " * (BLOCK // 5) + "é".encode()[:1],
        "wide.txt": "Once there was a hen.".encode("utf-16"),
        "empty.txt": b"",
    }
    texts = draw_texts(50)
    for name, content in others.items():
        (write_files(tmp_path / "a", texts) / name).write_bytes(content)
    corpus = open_corpus(config(tmp_path / "a"))
    dataset = prepare(corpus, BYTE, tmp_path / ".cache", 8)
    assert sorted(documents(dataset, "train") + documents(dataset, "val")) == sorted(texts)
    assert corpus.description and "; skipped 6 files (not UTF-8 text, or " in corpus.description
    assert all(f"/{name}" in corpus.description for name in others)


def test_a_file_of_rows_is_text_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "Once."}\n' * 9)
    description = open_corpus(config(tmp_path / "a.jsonl")).description
    assert description and "1 file of rows as plain text (data=dataset" in description


NOTED = [
    ("One.<|endoftext|>\nTwo.", None, "(data.separator='<|endoftext|>' divides documents there)"),
    ("One.<|endoftext|>Two.<|endoftext|>", "<|endoftext|>", None),
    ("One.\r\n\r\nTwo.", r"\n\n", r"data.separator='\n\n' occurs nowhere"),
    ("One.---Two.", "---", None),
]


@pytest.mark.parametrize("block", [1, BLOCK])
@pytest.mark.parametrize(("text", "separator", "note"), NOTED)
def test_what_may_not_be_meant_is_noted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    separator: str | None,
    note: str | None,
    block: int,
) -> None:
    """A text that spells the end of documents, and a separator that it does not have."""
    monkeypatch.setattr("data.decoding.BLOCK", block)
    (tmp_path / "a.txt").write_bytes(text.encode())
    (tmp_path / "b.txt").write_text("Once there was a hen.")
    for path in (tmp_path / "a.txt", tmp_path):
        description = open_corpus(config(path, separator=separator)).description or ""
        assert description.endswith(note or "bytes")
        assert description.count(";") == (note is not None)


def test_the_end_of_a_document_is_a_token(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "a", draw_texts(400))
    for name, vocab in (("bpe", 300), ("byte", None)):
        tokenizer_config = TokenizerConfig(name, vocab)
        dataset = prepare(open_corpus(config(folder)), tokenizer_config, tmp_path / "c", 8)
        tokenizer = dataset.tokenizer
        assert tokenizer.vocab_size == (vocab or 257)
        (end,) = tokenizer.eos_ids
        assert end == tokenizer.bos_id == tokenizer.special_tokens["<|endoftext|>"]
        assert end not in tokenizer.encode("<|endoftext|>")


def test_the_index_has_the_first_token_of_each_document(tmp_path: Path) -> None:
    dataset = read(write_files(tmp_path / "a", draw_texts(300)), tmp_path / ".cache")
    (folder,) = (tmp_path / ".cache").iterdir()
    (end,) = dataset.tokenizer.eos_ids
    for split in ("train", "val"):
        starts = np.fromfile(folder / f"{split}.idx", "<i8").tolist()
        ends = np.flatnonzero(getattr(dataset, split) == end)
        assert starts == [0, *(ends[:-1] + 1)]
