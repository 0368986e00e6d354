"""Which documents are for validation: close to the fraction that is asked for, however few."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpora import open_corpus
from data.corpus import Text
from data.split import split_documents
from data.tokens import prepare
from launch.schema import preset
from tests.data.conftest import BYTE, write_files

HUGE = 400_000
SIZES = {
    "1": [5000],
    "2": [900, 5000],
    "3": [120_000] * 3,
    "10": [random.Random(0).randint(200, 3000) for _ in range(10)],
    "100": [random.Random(1).randint(20, 2000) for _ in range(100)],
    "100 equal": [300] * 100,
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
    folder = tmp_path / "data"
    settings: dict[str, object] = {}
    if kind == "files":
        write_files(folder, texts)
    else:
        folder.mkdir()
        rows = (json.dumps({"text": text}) + "\n" for text in texts)
        content = "|".join(texts) if kind == "separator" else "".join(rows)
        (folder / ("a.txt" if kind == "separator" else "a.jsonl")).write_text(content)
        settings = {"separator": "|"} if kind == "separator" else {}
    data = "dataset" if kind == "dataset" else "text"
    config = preset("data", data, path=str(folder), val_fraction=val_fraction, **settings)
    documents = open_corpus(config).documents()
    parts = [(document.split, "".join(document.parts)) for document in documents]
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
    corpus = open_corpus(preset("data", "text", path=str(write_files(tmp_path / "books", books))))
    report = prepare(corpus, BYTE, tmp_path / "cache", 8).report
    assert report == "3 documents, 360.0 kB of text; the ends of 3 for validation"
    parts = [(document.split, "".join(document.parts)) for document in corpus.documents()]
    assert [split for split, _ in parts] == ["train", "val"] * 3
    for book, (_, end) in zip(books, parts[1::2], strict=True):
        assert book.endswith(end) and len(end.encode()) == pytest.approx(12_000, abs=2)
