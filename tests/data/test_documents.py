"""Corpora of documents: what is read, which split it belongs to, what is encoded again."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from configs.schema import preset
from data.arrays import TokenArray
from data.corpora import open_corpus
from data.decoding import BLOCK
from data.documents import TextConfig
from data.readers import _divided
from data.text import Text
from data.tokenizer import Tokenizer, TokenizerConfig, fixed_tokenizer
from data.tokens import Dataset, prepare
from tests.conftest import ROOT

BYTE = TokenizerConfig("byte", None)
WORDS = ["hen", "fox", "owl", "ran", "sat", "sang", "to", "the", "hill", "née", "漢字", "a\nb"]


def draw_texts(count: int, seed: int = 0, longest: int = 40) -> list[str]:
    rng = random.Random(seed)
    return [
        f"{seed}.{i} " + " ".join(rng.choices(WORDS, k=rng.randint(1, longest)))
        for i in range(count)
    ]


def lines(texts: list[str], field: str = "text") -> bytes:
    rows = ({"id": i, field: text} for i, text in enumerate(texts))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def zstd(data: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def table(texts: list[str], field: str = "text") -> bytes:
    return store([list(range(len(texts))), texts], ["id", field])


def store(columns: list, names: list[str], kind: pyarrow.DataType = None) -> bytes:
    """A parquet file."""
    sink = pyarrow.BufferOutputStream()
    arrays = [
        each if isinstance(each, pyarrow.Array) else pyarrow.array(each, kind) for each in columns
    ]
    rows = pyarrow.Table.from_arrays(arrays, names)
    pyarrow.parquet.write_table(rows, sink, row_group_size=97)
    return sink.getvalue().to_pybytes()


def write_lines(path: Path, texts: list[str], field: str = "text") -> None:
    data = lines(texts, field)
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":  # two frames, as `cat a.zst b.zst` makes
        half = len(data) // 2
        data = zstd(data[:half]) + zstd(data[half:])
    path.write_bytes(data)


def write_table(path: Path, texts: list[str], field: str = "text") -> None:
    path.write_bytes(table(texts, field))


def config(path: Path | str, **settings: object) -> TextConfig:
    return preset("data", "text", path=str(path), **settings)


def read(path: Path | str, cache: Path, **settings: object) -> Dataset:
    return prepare(open_corpus(config(path, **settings)), BYTE, cache, 8)


def documents(dataset: Dataset, split: str) -> list[str]:
    """The documents of a split, from its tokens."""
    tokens = getattr(dataset, split)[:]
    (end,) = dataset.tokenizer.eos_ids
    parts = np.split(tokens, np.flatnonzero(tokens == end) + 1)
    assert all(part[-1] == end for part in parts[:-1]) and not len(parts[-1])
    return [dataset.tokenizer.decode(part[:-1].tolist()) for part in parts[:-1]]


def test_every_format_and_compression(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    texts = draw_texts(900)
    write_lines(folder / "a.jsonl", texts[:200])
    write_lines(folder / "b.jsonl.gz", texts[200:400])
    write_lines(folder / "deep" / "c.jsonl.zst", texts[400:600])
    write_table(folder / "d.parquet", texts[600:700])
    (folder / "e.parquet.gz").write_bytes(gzip.compress(table(texts[700:800])))
    (folder / "f.txt").write_text(texts[800])
    (folder / "g.txt.gz").write_bytes(gzip.compress(texts[801].encode()))
    (folder / "photo.png").write_bytes(b"\x89PNG\xff\0")
    (folder / "empty.txt").write_bytes(b"")
    (folder / ".hidden.txt").write_text("hidden")
    dataset = read(folder, tmp_path / "cache")
    found = documents(dataset, "train") + documents(dataset, "val")
    assert Counter(found) == Counter(texts[:802])
    assert dataset.report and "802 documents" in dataset.report and "photo.png" in dataset.report


def test_the_side_of_a_document_depends_on_its_text_alone(tmp_path: Path) -> None:
    texts = draw_texts(400)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    write_lines(tmp_path / "one" / "all.jsonl", texts)
    random.Random(1).shuffle(texts)
    write_table(tmp_path / "two" / "z.parquet", texts[:150])
    write_lines(tmp_path / "two" / "y.jsonl.gz", texts[150:])
    write_lines(tmp_path / "two" / "more.jsonl", draw_texts(100, seed=5))
    one, two = (read(tmp_path / each, tmp_path / "cache") for each in ("one", "two"))
    assert set(documents(one, "val")) <= set(documents(two, "val"))
    assert set(documents(one, "train")) <= set(documents(two, "train"))


@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.95])
def test_the_fraction_of_documents(tmp_path: Path, fraction: float) -> None:
    write_lines(tmp_path / "a.jsonl", draw_texts(1000, longest=3))
    dataset = read(tmp_path / "a.jsonl", tmp_path / ".cache", val_fraction=fraction)
    # Five standard deviations of a binomial distribution.
    n_val = len(documents(dataset, "val"))
    assert abs(n_val - 1000 * fraction) < 5 * (1000 * fraction * (1 - fraction)) ** 0.5


def test_a_separator_divides_plain_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n\n\ntwo is longer\n\nthree\nlines\n\n")
    dataset = read(tmp_path / "a.txt", tmp_path / ".cache", separator=r"\n\n", val_fraction=0.5)
    found = documents(dataset, "train") + documents(dataset, "val")
    assert sorted(found) == ["one", "three\nlines", "two is longer"]


@given(text=st.text("a|é", max_size=30), cuts=st.lists(st.integers(0, 30), max_size=12).map(sorted))
def test_a_separator_is_found_in_parts_of_any_size(text: str, cuts: list[int]) -> None:
    edges = [0, *cuts, 30]
    parts = [text[start:stop] for start, stop in itertools.pairwise(edges)]
    for separator in ("|||", "|", "a|"):
        found = list(_divided(filter(None, parts), separator))
        assert found == [each for each in text.split(separator) if each]


def test_duplicates_are_dropped_on_request(tmp_path: Path) -> None:
    texts = draw_texts(300)
    written = [*texts[:200], *texts[:50], *texts[150:], texts[299]]
    write_lines(tmp_path / "a.jsonl", written[:250])
    write_table(tmp_path / "b.parquet", written[250:])
    kept = read(tmp_path, tmp_path / ".cache")
    unique = read(tmp_path, tmp_path / ".cache", deduplicate=True)
    assert unique.report and "duplicates of earlier documents: 101 left out" in unique.report
    assert unique.sha256 != kept.sha256
    for split in ("train", "val"):
        found = documents(kept, split)
        assert found == [text for text in written if text in set(found)]  # in order
        assert documents(unique, split) == list(dict.fromkeys(found))
    assert len(documents(kept, "train")) + len(documents(kept, "val")) == 401


def test_both_splits_have_a_document_if_there_are_two(tmp_path: Path) -> None:
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        texts = draw_texts(2, seed=number)
        for name, text in zip("ab", texts, strict=True):
            (folder / f"{name}.txt").write_text(text * 3)
        dataset = read(folder, tmp_path / ".cache", val_fraction=0.01)
        assert len(documents(dataset, "train")) == len(documents(dataset, "val")) == 1


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are encoded from now on."""
    texts: list[str] = []
    encode = Tokenizer.encode_array

    def watched(self: Tokenizer, text: str) -> np.ndarray:
        texts.append(text)
        return encode(self, text)

    monkeypatch.setattr(Tokenizer, "encode_array", watched)
    return texts


def test_only_files_that_are_new_or_changed_are_encoded(tmp_path: Path, encoded: list[str]) -> None:
    texts = draw_texts(90)
    write_lines(tmp_path / "b.jsonl", texts[:30])
    write_lines(tmp_path / "d.jsonl", texts[30:60])
    first = read(tmp_path, tmp_path / ".cache")
    assert sorted(encoded) == sorted(texts[:60])
    encoded.clear()
    again = read(tmp_path, tmp_path / ".cache")
    assert not encoded
    assert again.sha256 == first.sha256
    for name in ("a", "c"):
        write_lines(tmp_path / f"{name}.jsonl", texts[60:])
    more = read(tmp_path, tmp_path / ".cache")
    assert sorted(encoded) == sorted(texts[60:] * 2)
    assert more.sha256 != first.sha256
    encoded.clear()
    write_lines(tmp_path / "b.jsonl", texts[:10])
    read(tmp_path, tmp_path / ".cache")
    assert sorted(encoded) == sorted(texts[:10])


def test_many_small_files_share_shards(tmp_path: Path, encoded: list[str]) -> None:
    texts = draw_texts(300)
    for number, text in enumerate(texts[:299]):
        (tmp_path / f"{number}.txt").write_text(text)
        (tmp_path / f"{number}.py").touch()
    dataset = read(tmp_path, tmp_path / ".cache")
    assert sorted(documents(dataset, "train") + documents(dataset, "val")) == sorted(texts[:299])
    shards = list((tmp_path / ".cache").glob("tokens-*"))
    assert 3 < len(shards) < 40
    encoded.clear()
    (tmp_path / "299.txt").write_text(texts[299])
    read(tmp_path, tmp_path / ".cache")
    assert texts[299] in encoded and len(encoded) < 100


def test_the_tokens_depend_on_what_ends_a_document(tmp_path: Path) -> None:
    """Also of tokenizers that give the same tokens for every text."""
    write_lines(tmp_path / "a.jsonl", draw_texts(50))
    byte = fixed_tokenizer("byte")
    for end in (7, 8, None):
        tokenizer = byte.with_special_ids(None, False, () if end is None else (end,))
        found = prepare(open_corpus(config(tmp_path / "a.jsonl")), tokenizer, tmp_path / "c", 8)
        last = found.train[-2:].tolist()
        assert last == [10, 10] if end is None else last[1] == end


def test_the_split_does_not_depend_on_how_a_server_sends_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):  # which differ after their first 1,000 characters
        (tmp_path / f"{number}.txt").write_text("Once. " * 200 + str(number) * 500)
    whole = read(tmp_path, tmp_path / ".whole")
    monkeypatch.setattr("data.decoding.BLOCK", 100)
    assert read(tmp_path, tmp_path / ".parts").sha256 == whole.sha256


def test_a_moved_folder_has_the_same_tokens(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    for number, text in enumerate(draw_texts(150)):
        (tmp_path / "here" / f"{number}.txt").write_text(text)
    first = read(tmp_path / "here", tmp_path / ".cache")
    (tmp_path / "here").rename(tmp_path / "there")
    assert read(tmp_path / "there", tmp_path / ".cache").sha256 == first.sha256


@pytest.mark.parametrize("count", [2, 200], ids=["a shard each", "shared shards"])
@pytest.mark.parametrize("tokenizer", [BYTE, TokenizerConfig("bpe", 300)], ids=["byte", "bpe"])
def test_files_that_are_not_utf8_to_their_end_are_skipped_and_listed(
    tmp_path: Path, count: int, tokenizer: TokenizerConfig
) -> None:
    others = {
        "0.txt": b"caf\xe9",
        "1.png": b"\x89PNG\0",
        "late.txt": b"Once. " * (BLOCK // 5) + b"\xff",
        "zero.txt": b"Once. " * (BLOCK // 5) + b"\0",
        "cut.txt": b"Once. " * (BLOCK // 5) + "é".encode()[:1],
        "late.txt.gz": gzip.compress(b"Once. " * (BLOCK // 5) + b"\xff"),
        "z.png": b"\x89PNG\0",
    }
    texts = draw_texts(count)
    for number, text in enumerate(texts):
        (tmp_path / f"m{number}.txt").write_text(text)
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    dataset = prepare(open_corpus(config(tmp_path)), tokenizer, tmp_path / ".cache", 8)
    assert sorted(documents(dataset, "train") + documents(dataset, "val")) == sorted(texts)
    assert dataset.report and "skipped 7 files (not UTF-8 text, or empty): " in dataset.report
    assert all(f"/{name}" in dataset.report for name in others)


def test_the_only_text_that_is_utf8_to_its_end_is_a_single_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Once. " * 9)
    (tmp_path / "b.txt").write_bytes(b"Once. " * (BLOCK // 5) + b"\xff")
    corpus = open_corpus(config(tmp_path))
    assert isinstance(corpus, Text) and "b.txt" in (corpus.description or "")


def test_what_took_long_to_encode_stays_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoded: list[str]
) -> None:
    write_lines(tmp_path / "a.jsonl", draw_texts(500))
    (tmp_path / "b.jsonl").write_bytes(b"{")
    for much, kept in ((1 << 27, 0), (5000, 1)):
        monkeypatch.setattr("data.tokens.MUCH", much)
        with pytest.raises(UserError, match="line 1 is not JSON"):
            read(tmp_path, tmp_path / ".cache")
        assert len(list(tmp_path.glob(".cache/*"))) == kept


def test_tokens_can_be_read_after_the_cache_is_deleted(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", draw_texts(100))
    dataset = read(tmp_path / "a.jsonl", tmp_path / ".cache")
    shutil.rmtree(tmp_path / ".cache")
    assert len(documents(dataset, "train") + documents(dataset, "val")) == 100


def test_lone_surrogates_do_not_stop_the_training_of_a_tokenizer(tmp_path: Path) -> None:
    spelled = "".join(f'{{"text": "{n} hens \\ud800 and {n} foxes"}}\n' for n in range(60))
    (tmp_path / "a.jsonl").write_text(spelled)
    corpus = open_corpus(config(tmp_path / "a.jsonl"))
    assert prepare(corpus, TokenizerConfig("bpe", 300), tmp_path / ".cache", 8).report


def test_pieces_of_any_size_give_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*draw_texts(300), "漢字 " * 3000, *draw_texts(300, seed=1)]
    write_lines(tmp_path / "a.jsonl", texts)
    whole = read(tmp_path / "a.jsonl", tmp_path / "one")
    monkeypatch.setattr("data.shards.PIECE", 500)
    monkeypatch.setattr("data.shards.cut", small_pieces)
    pieces = read(tmp_path / "a.jsonl", tmp_path / "two")
    assert pieces.sha256 == whole.sha256
    for split in ("train", "val"):
        assert (getattr(pieces, split)[:] == getattr(whole, split)[:]).all()


def small_pieces(texts: list[str]) -> Iterator[str]:
    for text in texts:
        yield from (text[i : i + 1000] for i in range(0, len(text), 1000))


KILLED = """
import sys, time
from configs.schema import preset
from data.corpora import open_corpus
from data.tokenizer import Tokenizer, TokenizerConfig
from data.tokens import prepare

count, encode = [0], Tokenizer.encode_array
def slow(self, text):
    time.sleep(0.001)
    count[0] += 1
    return encode(self, text)
Tokenizer.encode_array = slow
corpus = open_corpus(preset("data", "text", path=sys.argv[1]))
dataset = prepare(corpus, TokenizerConfig("byte", None), sys.argv[2], 8)
print(count[0], dataset.sha256)
"""


def test_a_killed_preparation_loses_one_shard(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    for number in range(6):
        write_lines(tmp_path / f"corpus/{number}.jsonl.gz", draw_texts(300, seed=number))
    command = [sys.executable, "-c", KILLED, str(tmp_path / "corpus")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def start(cache: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, str(tmp_path / cache)], stdout=subprocess.PIPE, text=True, env=environment
        )

    process = start("killed")
    while len(list(tmp_path.glob("killed/tokens-*"))) < 3:
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.communicate()
    done = len(list(tmp_path.glob("killed/tokens-*")))
    count, digest = (start("killed").communicate(timeout=120)[0]).split()
    whole_count, whole_digest = (start("whole").communicate(timeout=120)[0]).split()
    assert int(whole_count) == 1800 and int(count) == 1800 - 300 * done
    assert digest == whole_digest


SOME, LONG = draw_texts(50), draw_texts(30, seed=7)
BAD = {
    "a.jsonl": (b'{"text": "a"}\n{"text": \n', r"line 2 is not JSON \(.* at column 9\)"),
    "b.jsonl": (b'{"body": "a"}\n', "no key 'text'.*body"),
    "c.jsonl": (b'{"text": 5}\n', "is not a text"),
    "d.jsonl": (b"[1]\n", "line 1 is not a JSON object with a key 'text'"),
    "e.jsonl": (b'{"text": "\xff"}\n', "line 1 is not JSON"),
    "f.jsonl.gz": (gzip.compress(lines(SOME))[:-20], "is damaged"),
    "g.jsonl.zst": (zstd(lines(SOME))[:-20], "is damaged"),
    "h.jsonl.gz": (b"no gzip", "is damaged"),
    "i.jsonl.zst": (b"no zstd", "is damaged"),
    "j.parquet": (table(SOME)[:-20], "is damaged"),
    "k.parquet": (table(SOME, "body"), "no column 'text'.*id, body"),
    "l.parquet": (b"", "is damaged"),
    "m.jsonl": (b"[" * 100_000, "line 1 is not JSON"),
    "n.jsonl": (lines(SOME) + b'{"text": no}', r"line 51 is not JSON \([^(]* at column 10\)"),
    "o.parquet": (store([SOME, SOME], ["text", "text"]), "several columns 'text'"),
    "p.parquet": (store([SOME], ["text"], pyarrow.binary()), "has the type binary"),
    "q.jsonl": (lines(["a single document"]), "^data.path: has 1 document that is not empty"),
    "r.jsonl": (lines(["", ""]), "^data.path: has 0 documents that are not empty"),
    "s.parquet": (store([pyarrow.array([b"\xff"]).view(pyarrow.string())], ["text"]), "is damaged"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, name: str) -> None:
    content, problem = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=problem) as caught:
        read(tmp_path / name, tmp_path / ".cache")
    assert (name in str(caught.value) or name[0] in "qr") and "\n" not in str(caught.value)
    assert not list((tmp_path / ".cache").glob("*"))


def test_other_columns_and_what_json_can_spell(tmp_path: Path) -> None:
    lines = [
        '{"body": "lone \\ud800 half"}',
        '{"body": null}',
        '{"body": ""}',
        "",
        '{"body": "\\u0000"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    write_table(tmp_path / "b.parquet", LONG, "body")
    dataset = read(tmp_path, tmp_path / ".cache", field="body")
    found = documents(dataset, "train") + documents(dataset, "val")
    assert sorted(found) == sorted(["lone \ufffd half", "\0", *LONG])


@pytest.mark.parametrize("kind", [pyarrow.large_string(), pyarrow.string_view()])
def test_every_type_of_text_of_arrow(tmp_path: Path, kind: pyarrow.DataType) -> None:
    (tmp_path / "a.parquet").write_bytes(store([LONG], ["text"], kind))
    dataset = read(tmp_path / "a.parquet", tmp_path / ".cache")
    assert sorted(documents(dataset, "train") + documents(dataset, "val")) == sorted(LONG)


def test_the_end_of_a_document_is_a_token(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", draw_texts(400))
    for name, vocab in (("bpe", 300), ("byte", None)):
        dataset = prepare(
            open_corpus(config(tmp_path / "a.jsonl")),
            TokenizerConfig(name, vocab),
            tmp_path / "c",
            8,
        )
        tokenizer = dataset.tokenizer
        assert tokenizer.vocab_size == (vocab or 257)
        assert (
            tokenizer.eos_ids == (tokenizer.bos_id,) == (tokenizer.special_tokens["<|endoftext|>"],)
        )
        (tmp_path / name).mkdir()
        tokenizer.save(tmp_path / name)
        assert Tokenizer.load(tmp_path / name).eos_ids == tokenizer.eos_ids
        assert tokenizer.eos_ids[0] not in tokenizer.encode("<|endoftext|>")


@given(data=st.data())
def test_stretches_of_files_are_one_array(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("array")
    arrays = [np.arange(100 * i, 100 * i + 20, dtype="<u2") for i in range(3)]
    files = [folder / f"{i}.bin" for i in range(3)]
    for file, array in zip(files, arrays, strict=True):
        array.tofile(file)
    edges = st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 20))
    spans = [(f, min(a, b), max(a, b)) for f, a, b in data.draw(st.lists(edges, max_size=6))]
    expected = np.concatenate([arrays[0][:0], *(arrays[f][a:b] for f, a, b in spans)])
    found = TokenArray(files, np.array(spans, dtype=np.int64).reshape(-1, 3), "<u2")
    assert len(found) == len(expected)
    assert (found[:] == expected).all()
    low, high = sorted(data.draw(st.tuples(st.integers(-70, 70), st.integers(-70, 70))))
    assert found[low:high].tolist() == expected[low:high].tolist()
    if len(expected):
        places = st.integers(-len(expected), len(expected) - 1)
        index = np.array(data.draw(st.lists(places, min_size=4, max_size=4))).reshape(2, 2)
        assert (found[index] == expected[index]).all()
    for beyond in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            found[np.array([beyond])]
