"""Documents: what is read of text files, and which split it belongs to, as close to the fraction
that is asked for as their number allows."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import open_corpus
from data.corpus import Text
from data.decoding import BLOCK
from data.encoding import Dataset
from data.split import split_documents
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
        "late.txt": b"Once. " * (BLOCK // 5) + b"\xff",
        "wide.txt": "Once there was a hen.".encode("utf-16"),
        "empty.txt": b"",
    }
    texts = draw_texts(50)
    for name, content in others.items():
        (write_files(tmp_path / "a", texts) / name).write_bytes(content)
    corpus = open_corpus(config(tmp_path / "a"))
    dataset = prepare(corpus, BYTE, tmp_path / ".cache", 8)
    assert sorted(documents(dataset, "train") + documents(dataset, "val")) == sorted(texts)
    assert corpus.description and "; skipped 3 files (not UTF-8 text, or " in corpus.description
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


@pytest.mark.parametrize(("text", "separator", "note"), NOTED)
def test_what_may_not_be_meant_is_noted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    separator: str | None,
    note: str | None,
) -> None:
    """A text that spells the end of documents, and a separator that it does not have."""
    monkeypatch.setattr("data.decoding.BLOCK", 1)
    (tmp_path / "a.txt").write_bytes(text.encode())
    (tmp_path / "b.txt").write_text("Once there was a hen.")
    for path in (tmp_path / "a.txt", tmp_path):
        description = open_corpus(config(path, separator=separator)).description or ""
        assert description.endswith(note or "bytes")
        assert description.count(";") == (note is not None)


def test_the_end_of_a_document_is_a_token(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "a", draw_texts(400))
    for chosen in (TokenizerConfig("bpe", 300), BYTE):
        tokenizer = prepare(open_corpus(config(folder)), chosen, tmp_path / "c", 8).tokenizer
        (end,) = tokenizer.eos_ids
        assert end == tokenizer.bos_id == tokenizer.special_tokens["<|endoftext|>"]
        assert tokenizer.vocab_size == (chosen.vocab_size or 257)
        assert end not in tokenizer.encode("<|endoftext|>")


HUGE = 400_000
SIZES = {
    "1": [5000],
    "2": [900, 5000],
    "100": [random.Random(1).randint(20, 2000) for _ in range(100)],
    "huge first": [HUGE, *[300] * 50],
    "huge last": [*[300] * 50, HUGE],
    "huge among many": [*[300] * 400, HUGE, *[300] * 400],
}


def text_of_size(size: int, number: int) -> str:
    rng = random.Random(number)
    text = f"{number} " + " ".join(rng.choices(["hen", "owl", "née"], k=size // 4 + 1))
    return text.encode()[:size].decode(errors="ignore")


def parts_of(texts: Sequence[str], val_fraction: float, **more: float) -> list[tuple[str, str]]:
    """The split and the text of each document."""
    sized = (Text(len(text.encode()), iter([text[:7], text[7:]])) for text in texts)
    documents = split_documents(sized, val_fraction, **more)
    return [(document.split, "".join(document.parts)) for document in documents]


def share(parts: Sequence[tuple[str, str]]) -> float:
    sizes = {"train": 0, "val": 0}
    for split, text in parts:
        sizes[split] += len(text.encode())
    return sizes["val"] / sum(sizes.values())


def by_hash(text: str, val_fraction: float) -> str:
    digest = hashlib.blake2b(text[: 1 << 16].encode(), digest_size=8).digest()
    return "val" if int.from_bytes(digest, "big") / 2**64 < val_fraction else "train"


@pytest.mark.parametrize(
    ("kind", "name", "val_fraction"),
    [
        *(("separator", name, fraction) for name in SIZES for fraction in (0.01, 0.1, 0.5, 0.9)),
        *((kind, name, 0.1) for kind in ("files", "dataset") for name in ("2", "100")),
    ],
)
def test_the_split_is_close_to_what_is_asked_for(
    tmp_path: Path, kind: str, name: str, val_fraction: float
) -> None:
    texts = [text_of_size(size, number) for number, size in enumerate(SIZES[name])]
    files = {"files": texts, "separator": ["|".join(texts)], "dataset": ["\n".join(texts)]}[kind]
    path = str(write_files(tmp_path / "a", files))
    data = "dataset" if kind == "dataset" else "text"
    settings = {"separator": "|"} if kind == "separator" else {}
    corpus = open_corpus(preset("data", data, path=path, val_fraction=val_fraction, **settings))
    parts = [(document.split, "".join(document.parts)) for document in corpus.documents()]
    assert "".join(text for _, text in parts) == "".join(texts)
    smaller = min(val_fraction, 1 - val_fraction)
    assert abs(share(parts) - val_fraction) < 0.2 * smaller + 4 * len(texts) / sum(SIZES[name])


@given(
    texts=st.lists(st.text("aé\n", min_size=1, max_size=60), min_size=1, max_size=40),
    val_fraction=st.floats(0.01, 1),
    ahead=st.sampled_from([0, 300, 1e9]),
)
def test_few_documents_of_any_size(texts: list[str], val_fraction: float, ahead: float) -> None:
    """Each is whole, or divided once, with its end for validation; nothing is far off, unless the
    rest of a stream is not known."""
    parts = parts_of(texts, val_fraction, ahead=ahead)
    assert "".join(text for _, text in parts) == "".join(texts)
    waiting = iter(parts)
    for text in texts:
        split, found = next(waiting)
        if found != text:
            assert split == "train" and ("val", text[len(found) :]) == next(waiting)
    if ahead == 1e9:
        n_bytes = len("".join(texts).encode())
        smaller = min(val_fraction, 1 - val_fraction)
        rounding = len(texts) + 1  # a byte, and the rest of a character
        assert abs(share(parts) - val_fraction) <= smaller / 4 + rounding / n_bytes


@pytest.mark.parametrize(("count", "val_fraction"), [(1000, 0.1), (5000, 0.01), (1000, 0.5)])
def test_of_many_documents_each_has_the_split_of_its_hash(count: int, val_fraction: float) -> None:
    texts = [text_of_size(random.Random(i).randint(50, 400), i) for i in range(count)]
    expected = [(by_hash(text, val_fraction), text) for text in texts]
    for more in ({}, {"n_bytes": 1e6, "ahead": 1e5}):
        assert parts_of(texts, val_fraction, **more) == expected
    # One that is large gives its end, and leaves the others as they are.
    large = text_of_size(HUGE, count)
    found = parts_of([*texts, large], val_fraction)
    assert found[:-2] == expected and [split for split, _ in found[-2:]] == ["train", "val"]
    assert len(found[-1][1].encode()) == pytest.approx(val_fraction * HUGE, abs=2)


def test_a_stream_that_is_longer_than_what_is_read_ahead() -> None:
    texts = [text_of_size(2000, number) for number in range(900)]
    for more in ({"ahead": 30_000}, {"ahead": 30_000, "n_bytes": 900 * 2000.0}):
        for texts_of_stream in (texts, [*texts[:300], text_of_size(HUGE, 0), *texts[300:]]):
            found = parts_of(texts_of_stream, 0.05, **more)
            assert share(found) == pytest.approx(0.05, rel=0.3)


def test_three_books_give_their_ends(tmp_path: Path) -> None:
    books = [text_of_size(120_000, number) for number in range(3)]
    dataset = read(write_files(tmp_path / "books", books), tmp_path / "cache")
    assert dataset.report == "3 documents, 360.0 kB of text; the ends of 3 for validation"
    for book, end in zip(books, documents(dataset, "val"), strict=True):
        assert book.endswith(end) and len(end.encode()) == pytest.approx(12_000, abs=2)
