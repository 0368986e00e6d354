"""Corpora that the library `datasets` reads: every format, a folder as on the hub, and mistakes."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import sys
import threading
import zipfile
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import datasets
import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from common.errors import UserError
from data.corpora import open_corpus
from data.dataset import DatasetConfig
from data.encoding import Dataset
from data.tokens import prepare
from launch.schema import preset
from tests.conftest import PLAIN, ROOT, begin, command, finish, succeed
from tests.data.conftest import BYTE, documents, draw_texts

TEXTS = draw_texts(400)


def lines(texts: list[str]) -> bytes:
    """Other fields have any type."""
    kinds = (7, "seven", None, [7], {"a": [None]}, {"b": "x"})
    rows = ({"id": kinds[i % 6], "text": text} for i, text in enumerate(texts))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(texts: list[str]) -> bytes:
    sink, table = io.BytesIO(), pyarrow.table({"id": [*range(len(texts))], "text": texts})
    pyarrow.parquet.write_table(table, sink, row_group_size=97)
    return sink.getvalue()


def separated(texts: list[str], separator: str = ",") -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=separator)
    writer.writerows([("id", "text"), *enumerate(texts)])
    return stream.getvalue().encode()


def arrow(texts: list[str]) -> bytes:
    """A file; `save_to_disk` writes streams."""
    sink, table = io.BytesIO(), pyarrow.table({"text": pyarrow.array(texts).dictionary_encode()})
    with pyarrow.ipc.new_file(sink, table.schema) as file:
        file.write_table(table, max_chunksize=97)
    return sink.getvalue()


def zst(texts: list[str]) -> bytes:
    """Several frames, one after the other, as parallel compressors write."""
    halves = (lines(texts[:200]), lines(texts[200:]))
    return b"".join(zstandard.ZstdCompressor().compress(half) for half in halves)


FORMATS: dict[str, Callable[[list[str]], bytes]] = {
    "a.jsonl": lines,
    "a.csv": separated,
    "a.tsv": lambda texts: separated(texts, "\t"),
    "a.parquet": parquet,
    "a.arrow": arrow,
    "a.jsonl.gz": lambda texts: gzip.compress(lines(texts)),
    "a.csv.bz2": lambda texts: bz2.compress(separated(texts)),
    "a.ndjson.xz": lambda texts: lzma.compress(lines(texts)),
    "a.jsonl.zst": zst,
}


def config(path: Path | str | None, **settings: object) -> DatasetConfig:
    given = {"val_fraction": 0.1, **settings}
    return preset("data", "dataset", path=path and str(path), **given)


def read(path: Path | str | None, cache: Path, **settings: object) -> Dataset:
    return prepare(open_corpus(config(path, **settings)), BYTE, cache, 1)


def write(file: Path, texts: list[str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(FORMATS[f"a{''.join(file.suffixes)}"](texts))
    return file


def texts_of(path: Path | str, **settings: object) -> list[str]:
    """All documents, in their order."""
    documents = open_corpus(config(path, **{"val_fraction": 1.0, **settings})).documents()
    return ["".join(document.parts) for document in documents]


@pytest.mark.parametrize("name", FORMATS)
def test_formats(tmp_path: Path, name: str) -> None:
    assert texts_of(write(tmp_path / name, TEXTS)) == TEXTS


def test_lines_of_text(tmp_path: Path) -> None:
    """As Windows' Notepad writes them; a lone carriage return ends none."""
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\ntwo\rand a half\r\n".encode())
    assert texts_of(tmp_path / "a.txt") == ["one", "two\rand a half"]


def test_a_csv_that_is_not_regular(tmp_path: Path) -> None:
    """Rows that lack columns, and texts that look like something else; a column too many would cut
    a text at its comma."""
    texts = ["b,\n" * 50, 'd"d', "007", "1e5", "NA"]
    content = separated([*texts, *TEXTS]).decode() + "7\r\n\r\n8,last\r\n"
    (tmp_path / "a.csv").write_bytes(content.encode())
    assert texts_of(tmp_path / "a.csv") == [*texts, *TEXTS, "last"]
    (tmp_path / "a.csv").write_text(content + "9,one, two\n")
    with pytest.raises(UserError, match=r"a\.csv cannot be read \(row 409 has 3 columns, the"):
        texts_of(tmp_path / "a.csv")


def test_json_that_is_not_in_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor in blocks: a text can be longer than one. What is no Unicode is replaced, and texts that
    are missing or empty are skipped."""
    monkeypatch.setattr("data.rows.BLOCK", 50)
    file, rows = tmp_path / "a.json", [{"id": i, "text": text * 9} for i, text in enumerate(TEXTS)]
    texts = [text * 9 for text in TEXTS]
    for content in (
        "\n\n".join(map(json.dumps, rows)),
        "\n".join(json.dumps(row, indent=2) for row in rows),
        "\ufeff" + json.dumps(rows),
        json.dumps(texts, indent=1),
    ):
        file.write_text(content)
        assert texts_of(file) == texts
    odd = ['{"text": "a\\ud83d"}', '{"text": "b", "text": "c"}', '{"text": "tab\t"}']
    file.write_text("\n".join([*odd, '{"text": null}', '{"text": ""}', '{"text": "t\\u0000wo"}']))
    assert texts_of(file) == ["a\ufffd", "c", "tab\t", "t\0wo"]


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.arrow"])
def test_a_message_about_a_field_names_those_that_would_do(tmp_path: Path, name: str) -> None:
    """Of text: no numbers, no lists, and not the one that is refused."""
    row = {"id": 7, "title": "x", "tags": ["a"], "body": "y", "meta": {"text": "z"}}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    table = pyarrow.Table.from_pylist([row])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pyarrow.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as file:
        file.write_table(table)
    for field, problem in (
        ("id", "'id' of .* is not text"),
        ("tags", "'tags' of .* is not text"),
        ("text", "has no field 'text'"),
    ):
        with pytest.raises(UserError, match=rf"{problem}; .*\btitle, body$"):
            texts_of(tmp_path / name, field=field)


def test_a_folder_that_save_to_disk_wrote(tmp_path: Path) -> None:
    """Without what `map` keeps beside the data, also if the files are named by a glob."""
    rows = datasets.Dataset.from_dict({"text": TEXTS, "n": [*range(len(TEXTS))]})
    rows.save_to_disk(tmp_path / "one", num_shards=3)
    datasets.DatasetDict(train=rows, test=rows.select(range(9))).save_to_disk(tmp_path / "two")
    for folder in ("one", "two/train", "two/test"):
        datasets.load_from_disk(str(tmp_path / folder)).map(lambda row: {"text": row["text"] * 2})
        assert [*(tmp_path / folder).glob("cache-*.arrow")]
    for folder in ("one", "one/*.arrow", "two", "two/train"):
        assert texts_of(tmp_path / folder) == TEXTS
    assert texts_of(tmp_path / "two", split="test") == TEXTS[:9]
    assert texts_of(tmp_path / "two", split="test+train+test") == [*TEXTS[:9], *TEXTS]
    with pytest.raises(UserError, match=r"^data\.split: .*no split 'val'; .*\['train', 'test'\]"):
        texts_of(tmp_path / "two", split="val")


def test_what_the_library_finds_in_a_folder(tmp_path: Path) -> None:
    """Archives, and the separator that a README.md sets."""
    with zipfile.ZipFile(write(tmp_path / "zip/x.jsonl", []).with_suffix(".zip"), "w") as archive:
        archive.writestr("a.jsonl", lines(TEXTS[:200]))
        archive.writestr("deep/b.jsonl", lines(TEXTS[200:]))
    (tmp_path / "zip/x.jsonl").unlink()
    assert texts_of(tmp_path / "zip") == TEXTS
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv/a.csv").write_bytes(separated(TEXTS, ";"))
    header = "---\nconfigs:\n- config_name: default\n  data_files: a.csv\n  sep: ';'\n---\n"
    (tmp_path / "csv/README.md").write_text(header)
    assert texts_of(tmp_path / "csv") == TEXTS


def test_files_at_a_url(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    write(tmp_path / "a.jsonl.gz", TEXTS)
    write(tmp_path / "a.parquet", TEXTS)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("a.jsonl.gz", "a.parquet"):
            url = f"http://127.0.0.1:{server.server_port}/{name}"
            assert texts_of(url) == TEXTS
        server.shutdown()


def test_a_plain_folder_and_names_that_look_like_patterns(tmp_path: Path) -> None:
    write(tmp_path / "folder/x.jsonl", TEXTS[:100])
    write(tmp_path / "folder/y.jsonl", TEXTS[100:])
    for name in ("x.jsonl~", "#x.jsonl#", "x.jsonl.bak"):
        (tmp_path / "folder" / name).write_bytes(lines(TEXTS[:9]))
    assert texts_of(tmp_path / "folder") == TEXTS
    write(tmp_path / "a [x].jsonl", TEXTS[:50])
    write(tmp_path / "a x.jsonl", TEXTS[50:])
    assert texts_of(tmp_path / "a [x].jsonl") == TEXTS[:50]
    folder = write(tmp_path / "a [b]" / "a.jsonl", TEXTS).parent
    assert texts_of(f"{folder}/*.jsonl") == TEXTS
    # datasets 5.0 finds no files in it.
    with pytest.raises(UserError, match=r"^data\.path: .*a \[b\] cannot be opened .* or a glob$"):
        texts_of(folder)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the layout of a dataset on the hub, with two subsets."""
    folder = tmp_path_factory.mktemp("hub") / "stories"
    write(folder / "en/train-00000.parquet", TEXTS[:150])
    write(folder / "en/train-00001.parquet", TEXTS[150:300])
    write(folder / "en/validation.parquet", TEXTS[300:])
    write(folder / "de/train.parquet", TEXTS[::-1])
    (folder / "README.md").write_text(
        "---\nconfigs:\n"
        "- config_name: en\n  data_files:\n"
        "  - split: train\n    path: en/train-*.parquet\n"
        "  - split: validation\n    path: en/validation.parquet\n"
        "- config_name: de\n  data_files: de/train.parquet\n---\nSee https://localhost:1/.\n"
    )
    return folder


def test_a_folder_in_the_layout_of_the_hub(hub: Path, tmp_path: Path) -> None:
    own = read(hub, tmp_path, subset="en", val_split="validation")
    assert documents(own, "train") == TEXTS[:300] and documents(own, "val") == TEXTS[300:]
    hashed = read(hub, tmp_path, subset="en")
    assert sorted(documents(hashed, "train") + documents(hashed, "val")) == sorted(TEXTS[:300])
    few = read(hub, tmp_path, subset="de", n_documents=50)
    assert sorted(documents(few, "train") + documents(few, "val")) == sorted(TEXTS[:-51:-1])
    whole = prepare(open_corpus(config(hub, subset="en").undivided()), BYTE, tmp_path, 1, ("val",))
    assert documents(whole, "val") == TEXTS[:300] and not len(whole.train)


@pytest.mark.parametrize(
    ("path", "settings", "problem"),
    [
        (".", {}, r"subset: .*\['en', 'de'\]"),
        (".", {"subset": "en", "split": "tset"}, r"split: .*no split 'tset'.*'validation'"),
        ("de/*", {"val_split": " train"}, r"val_split: has files of data\.split"),
        ("de/*", {"split": "all", "val_split": "train"}, r"val_split: has files of data\.split"),
        ("no.jsonl", {}, "path: .*does not exist"),
        ("http://localhost:1/a.jsonl", {}, "path: .*cannot be opened"),
    ],
)
def test_a_setting_that_does_not_fit_is_one_line(
    hub: Path, tmp_path: Path, path: str, settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(UserError, match=rf"^data\.{problem}") as caught:
        read(path if "://" in path else hub / path, tmp_path / "cache", **settings)
    assert "\n" not in str(caught.value) and not (tmp_path / "cache").exists()


BAD = {
    "a.jsonl": (b'{"text": "a"}\n{"text": \n', "cannot be read .*damaged JSON in line 2, at"),
    "b.jsonl.gz": (gzip.compress(lines(TEXTS))[:-20], "cannot be read"),
    "d.png": (b"", "files of .png; give files of one of .jsonl"),
    "f.jsonl": (b'{"text": "a"}\n{"id": "b", "text": 12}\n', "'text' of row 2 is 12, and not text"),
    "g.csv": (b"text,text\na,b\n", "^data.field: .* has several columns 'text'"),
    "i.csv": (b'text\na\n"b\nc\n', "cannot be read .*unexpected end of data"),
    "j.csv": (b"text\nd\xe9j\xe0 vu, and more of it\n", "is not UTF-8; it looks like Windows-1252"),
    "h.csv": (b"id, text\na,b\n", "^data.field: .* choose one of id, ' text'$"),
    "l.txt": (b"", "^data: contains no text; choose other files"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, name: str) -> None:
    content, problem = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=problem) as caught:
        read(tmp_path / name, tmp_path / "cache")
    assert "\n" not in str(caught.value) and not (tmp_path / "cache").exists()


def test_files_that_are_not_read_are_named(tmp_path: Path) -> None:
    """The library takes one format, and if a file is named after a split, only such files."""
    (tmp_path / "poems").mkdir()
    for name in ("1.txt", "2.txt", "night_train.txt", "test_of_time.txt", ".3.txt", "a.md"):
        (tmp_path / "poems" / name).write_text(name)
    found = open_corpus(config(tmp_path / "poems")).description
    said = "; other splits: test; the library datasets leaves out 2 files: 1.txt, 2.txt"
    assert found == f"streaming {tmp_path / 'poems'}{said}"
    write(tmp_path / "all/a.jsonl", TEXTS)
    assert open_corpus(config(tmp_path / "all")).description == f"streaming {tmp_path / 'all'}"


def test_a_changed_file_or_setting_is_encoded_again(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", TEXTS)
    first = open_corpus(config(file)).fingerprint()
    assert open_corpus(config(file)).fingerprint() == first
    assert open_corpus(config(file, n_documents=9)).fingerprint() != first
    os.utime(file, (0, 0))
    second = open_corpus(config(file)).fingerprint()
    write(file, TEXTS[1:])
    os.utime(file, (0, 0))
    assert len({first, second, open_corpus(config(file)).fingerprint()}) == 3


def test_nothing_of_a_dataset_is_executed(tmp_path: Path) -> None:
    """Neither a script that is called as its folder is, nor what `pickle` would."""
    folder = tmp_path / "stories"
    write(folder / "train.jsonl", TEXTS)
    (folder / "stories.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    with pytest.raises(UserError, match=r"^data\.path: .*scripts are no longer supported"):
        read(folder, tmp_path / "cache")
    (folder / "stories.py").unlink()
    (folder / "train.jsonl").rename(folder / "train.pkl")
    with pytest.raises(UserError, match=r"^data\.path: "):
        read(folder, tmp_path / "cache")
    assert not (tmp_path / "executed").exists()


def test_a_strangers_run_fetches_nothing(hub: Path) -> None:
    """A header can name files elsewhere, in many spellings."""
    assert open_corpus(config(hub / "de"), trusted=False).description
    for path, problem in (
        ("roneneldan/TinyStories", "not on this machine"),
        ("http://localhost:1/a.jsonl", "not on this machine"),
        (hub, r"whose README\.md can name files elsewhere"),
    ):
        with pytest.raises(UserError, match=rf"run names .*{problem}; confirm with data="):
            open_corpus(config(path, subset="de"), trusted=False)


def test_a_run_trains_is_resumed_and_scored(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", draw_texts(4000))
    settings = [each for each in PLAIN if not each.startswith(("data.", "tokenizer."))]
    chosen = ("data=dataset", "data.path=a.jsonl", "data.val_fraction=0.1", "tokenizer=byte")
    printed = succeed("train", *settings, *chosen, "run_dir=run", cwd=tmp_path)
    assert "streaming" in printed and "4,000 documents, " in printed
    succeed("train", "resume=run", "trainer.max_steps=8", cwd=tmp_path)
    printed = succeed("evaluate", "run=run", cwd=tmp_path)
    assert "val: " in printed
    done = command("evaluate", "run=run", *chosen[:2], "data.val_split=test", cwd=tmp_path)
    assert done.stderr.startswith("error: data.val_split: has no effect on split=all;")
    write(tmp_path / "a.jsonl", draw_texts(4000, seed=1))
    done = command("train", "resume=run", "trainer.max_steps=9", cwd=tmp_path)
    assert done.returncode == 2 and "text" in done.stderr


PEAK = """
import re, sys
from pathlib import Path
from launch.schema import preset
from data.corpora import open_corpus
from data.tokenizer import TokenizerConfig
from data.tokens import prepare
corpus = open_corpus(preset("data", "dataset", path=sys.argv[1]))
prepare(corpus, TokenizerConfig("byte", None), "cache", 8)
print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")
def test_memory_does_not_grow_with_the_dataset(tmp_path: Path) -> None:
    peaks = []
    for copies in (30, 120):
        file = tmp_path / f"{copies}.jsonl"
        file.write_bytes(lines(draw_texts(10_000)) * copies)
        peaks.append(int(finish(begin("-c", PEAK, str(file), cwd=tmp_path, PYTHONPATH=str(ROOT)))))
    assert peaks[1] < peaks[0] + 80_000  # kB; the file alone is 110 MB larger
