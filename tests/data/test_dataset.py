"""Corpora that the library `datasets` reads: every format, a folder as on the hub, and mistakes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from common.errors import UserError
from configs.schema import preset
from data.corpora import open_corpus
from data.corpus import Corpus
from data.dataset import DatasetConfig
from data.tokens import Dataset, prepare
from tests.conftest import ROOT, TINY, command, succeed
from tests.data.test_documents import BYTE, documents, draw_texts

TEXTS = draw_texts(400)


def lines(texts: list[str], field: str = "text") -> bytes:
    rows = ({"id": i, field: text} for i, text in enumerate(texts))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(texts: list[str], field: str = "text") -> bytes:
    sink = pyarrow.BufferOutputStream()
    table = pyarrow.table({"id": [*range(len(texts))], field: texts})
    pyarrow.parquet.write_table(table, sink, row_group_size=97)
    return sink.getvalue().to_pybytes()


def separated(texts: list[str]) -> bytes:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([("id", "text"), *enumerate(texts)])
    return stream.getvalue().encode()


FORMATS: dict[str, Callable[[list[str]], bytes]] = {
    "a.jsonl": lines,
    "a.csv": separated,
    "a.parquet": parquet,
    "a.jsonl.gz": lambda texts: gzip.compress(lines(texts)),
}


def config(path: Path | str | None, **settings: object) -> DatasetConfig:
    given = {"val_fraction": 0.1, **settings}
    return preset("data", "dataset", path=path and str(path), **given)


def read(path: Path | str | None, cache: Path, **settings: object) -> Dataset:
    return prepare(open_corpus(config(path, **settings)), BYTE, cache, 1)


def write(file: Path, texts: list[str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(FORMATS[f"a.{file.name.partition('.')[2]}"](texts))
    return file


@pytest.mark.parametrize("name", FORMATS)
def test_formats(tmp_path: Path, name: str) -> None:
    """The same documents in the same splits as those of text files: the hash of each decides."""
    dataset = read(write(tmp_path / name, TEXTS), tmp_path / "cache")
    expected = prepare(
        open_corpus(preset("data", "text", path=str(joined(tmp_path)), separator="|")),
        BYTE,
        tmp_path / "cache",
        1,
    )
    for split in ("train", "val"):
        assert documents(dataset, split) == documents(expected, split)
    assert dataset.report and dataset.report.startswith("400 documents, ")


def joined(folder: Path) -> Path:
    (folder / "all.txt").write_text("|".join(TEXTS))
    return folder / "all.txt"


def test_texts_that_are_missing_or_empty_are_skipped(tmp_path: Path) -> None:
    rows = ['{"text": null}', '{"text": ""}', '{"text": "one"}', '{"text": "t\\u0000wo"}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows * 20))
    dataset = read(tmp_path / "a.jsonl", tmp_path / "cache", val_fraction=0.5)
    found = documents(dataset, "train") + documents(dataset, "val")
    assert sorted(found) == ["one"] * 20 + ["t\0wo"] * 20


def test_a_plain_folder_and_names_that_look_like_patterns(tmp_path: Path) -> None:
    write(tmp_path / "folder/x.jsonl", TEXTS[:100])
    write(tmp_path / "folder/y.jsonl", TEXTS[100:])
    whole = read(tmp_path / "folder", tmp_path / "cache")
    assert sorted(documents(whole, "train") + documents(whole, "val")) == sorted(TEXTS)
    write(tmp_path / "a [x].jsonl", TEXTS[:50])
    write(tmp_path / "a x.jsonl", TEXTS[50:])
    own = read(tmp_path / "a [x].jsonl", tmp_path / "cache")
    assert sorted(documents(own, "train") + documents(own, "val")) == sorted(TEXTS[:50])


def test_words_of_a_csv_that_mean_nothing_elsewhere_are_texts(tmp_path: Path) -> None:
    texts = [*TEXTS[:100], "NA", "null", "None", "nan"]
    dataset = read(write(tmp_path / "a.csv", texts), tmp_path / "cache", val_fraction=0.3)
    assert sorted(documents(dataset, "train") + documents(dataset, "val")) == sorted(texts)


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
    ("settings", "problem"),
    [
        ({}, r"^data\.subset: .*\['en', 'de'\]"),
        ({"subset": "en", "split": "tset"}, r"^data\.split: .*no split 'tset'.*'validation'"),
        ({"subset": "de", "field": "id"}, r"^data\.field: 'id' .* is not text"),
    ],
)
def test_a_setting_that_does_not_fit_is_one_line(
    hub: Path, tmp_path: Path, settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        read(hub, tmp_path / "cache", **settings)
    assert "\n" not in str(caught.value) and not (tmp_path / "cache").exists()


BAD = {
    "a.jsonl": (b'{"text": "a"}\n{"text": \n', "cannot be read .*JSON"),
    "b.jsonl.gz": (gzip.compress(lines(TEXTS))[:-20], "cannot be read"),
    "c.parquet": (b"", "cannot be read"),
    "d.png": (b"", "files of .png; give files of one of .jsonl"),
    "e.parquet": (parquet(TEXTS, "body"), "^data.field: .*no field 'text'; .*id, body"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, name: str) -> None:
    content, problem = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=problem) as caught:
        read(tmp_path / name, tmp_path / "cache")
    assert "\n" not in str(caught.value) and not (tmp_path / "cache").exists()


def test_what_is_nowhere_is_one_line(tmp_path: Path) -> None:
    for path, problem in (
        (tmp_path / "no.jsonl", "does not exist"),
        ("http://localhost:1/a.jsonl", "cannot be opened"),
    ):
        with pytest.raises(UserError, match=rf"^data\.path: .*{problem}"):
            read(path, tmp_path / "cache")


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


@pytest.mark.parametrize("path", ["roneneldan/TinyStories", "http://localhost:1/a.jsonl"])
def test_a_strangers_run_fetches_nothing(path: str) -> None:
    with pytest.raises(UserError, match=r"the run names .*not on this machine; confirm with data="):
        open_corpus(config(path), trusted=False)


def test_files_of_a_strangers_run(hub: Path, tmp_path: Path) -> None:
    write(tmp_path / "folder/a.jsonl", TEXTS)
    corpus: Corpus = open_corpus(config(tmp_path / "folder"), trusted=False)
    assert corpus.description == f"streaming {tmp_path / 'folder'}"
    # A header can name files elsewhere, in many spellings.
    with pytest.raises(UserError, match=r"whose README\.md can name files elsewhere; confirm with"):
        open_corpus(config(hub, subset="de"), trusted=False)


def test_a_run_trains_is_resumed_and_scored(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", draw_texts(4000))
    settings = [each for each in TINY if not each.startswith(("data.", "tokenizer."))]
    chosen = ("data=dataset", "data.path=a.jsonl", "data.val_fraction=0.1", "tokenizer=byte")
    printed = succeed("train", *settings, *chosen, "run_dir=run", cwd=tmp_path)
    assert "streaming" in printed and "4,000 documents, " in printed
    succeed("train", "resume=run", "trainer.max_steps=8", cwd=tmp_path)
    printed = succeed("evaluate", "run=run", cwd=tmp_path)
    assert "val: " in printed
    write(tmp_path / "a.jsonl", draw_texts(4000, seed=1))
    done = command("train", "resume=run", "trainer.max_steps=9", cwd=tmp_path)
    assert done.returncode == 2 and "text" in done.stderr


PEAK = """
import re, sys
from pathlib import Path
from configs.schema import preset
from data.cache import publish
from data.corpora import open_corpus
from data.tokenizer import TokenizerConfig
from data.tokens import prepare
data, path, tokenizer, vocab_size = sys.argv[1:]
corpus = open_corpus(preset("data", data, path=path))
prepare(corpus, TokenizerConfig(tokenizer, int(vocab_size) or None), "cache", 8)
print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def peak_memory(data: str, file: Path, tokenizer: str, vocab_size: int = 0) -> int:
    """Of a process that encodes a file of the corpus `data`, in kB."""
    child = [sys.executable, "-c", PEAK, data, str(file), tokenizer, str(vocab_size)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return int(subprocess.check_output(child, cwd=file.parent, env=environment))


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")
def test_memory_does_not_grow_with_the_dataset(tmp_path: Path) -> None:
    peaks = []
    for copies in (30, 120):
        file = tmp_path / f"{copies}.jsonl"
        file.write_bytes(lines(draw_texts(10_000)) * copies)
        peaks.append(peak_memory("dataset", file, "byte"))
    assert peaks[1] < peaks[0] + 80_000  # kB; the file alone is 110 MB larger
