"""prepare.py: shards that are independent of each other, on one machine or through launchers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.errors import UserError
from configs.schema import preset
from data.corpora import load_dataset
from data.prepared import assign
from data.sources import Source
from data.tokenizer import TokenizerConfig
from tests.conftest import NEW_INTERPRETER, TINY_MODEL, command, succeed
from tests.data.test_documents import BYTE, documents, draw_texts, write_lines, write_table
from tests.test_bad_input import in_new_interpreter

TEXTS = draw_texts(600)
SETTINGS = ("data.path=files", "tokenizer.vocab_size=300", "shards=3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files, and with all of their shards."""
    here = tmp_path_factory.mktemp("prepare")
    (here / "files").mkdir()
    for number in range(4):
        write_lines(here / "files" / f"{number}.jsonl.gz", TEXTS[100 * number : 100 * number + 100])
    write_table(here / "files" / "last.parquet", TEXTS[400:])
    succeed("prepare", "to=whole", *SETTINGS, cwd=here)
    return here


def fail(script: str, *settings: str, cwd: Path) -> str:
    """The one line of a command that must fail."""
    done = command(script, *settings, cwd=cwd)
    *_, problem = done.stderr.strip().splitlines()
    assert done.returncode == 2 and problem.startswith("error: "), done.stderr
    return problem


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(each.startswith(".") for each in path.parts)
    }


def test_shards_do_not_depend_on_each_other(folder: Path) -> None:
    expected = contents(folder / "whole")
    assert len(expected) == 3 * 7 + 4
    for number in (2, 0, 1):
        output = succeed("prepare", "to=single", *SETTINGS, f"shard={number}", cwd=folder)
        assert output.startswith(f"shard {number} of 3: ") and "MB/s" in output
    assert contents(folder / "single") == expected
    output = succeed("prepare", "to=single", *SETTINGS, cwd=folder)
    assert output.count("prepared before") == 3
    assert contents(folder / "single") == expected


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_launchers_spread_the_shards(folder: Path, launcher: str) -> None:
    spread = ("-m", "shard=range(0,3)", f"hydra/launcher={launcher}")
    output = succeed("prepare", *spread, f"to={launcher}", *SETTINGS, cwd=folder, **NEW_INTERPRETER)
    assert contents(folder / launcher) == contents(folder / "whole"), output
    assert not (folder / "runs").exists()


def test_a_damaged_or_missing_shard_is_written_again(folder: Path) -> None:
    succeed("prepare", "to=broken", *SETTINGS, cwd=folder)
    (first,) = (folder / "broken").glob("00000-*/train.bin")
    first.write_bytes(first.read_bytes()[:-1])
    (second,) = (folder / "broken").glob("00001-*/val.docs")
    second.unlink()
    problem = fail("train", "data=text", "data.path=broken", *TINY_MODEL, cwd=folder)
    assert "lacks 2 of 3 shards" in problem and "damaged: 0, 1;" in problem
    succeed("prepare", "to=broken", *SETTINGS, cwd=folder)
    assert contents(folder / "broken") == contents(folder / "whole")


def test_training_reads_the_folder(folder: Path) -> None:
    def read(path: str) -> list[list[str]]:
        config = preset("data", "text", path=str(folder / path))
        _, dataset = load_dataset(config, TokenizerConfig("bpe", 300), folder / ".cache", 8)
        return [sorted(documents(dataset, each)) for each in ("train", "val")]

    assert read("whole") == read("files")
    settings = ("data=text", "data.path=whole", "trainer.max_steps=4", "run_dir=run")
    succeed("train", *settings, *TINY_MODEL, cwd=folder)
    succeed("train", "resume=run", "trainer.max_steps=6", cwd=folder)
    assert json.loads((folder / "run" / "summary.json").read_text())["steps"] == 6
    everything = succeed("evaluate", "run=run", "split=all", cwd=folder)
    n_bytes = sum(len(each.encode()) for each in TEXTS)
    counted = int(everything.rpartition(" tokens, ")[2].partition(" bytes")[0].replace(",", ""))
    assert n_bytes - 20 <= counted < n_bytes  # the first token is not scored


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            ("to=whole", "data.path=files", "tokenizer=byte"),
            "to: whole has shards of other settings",
        ),
        (("to=files", *SETTINGS), "to: files has other files"),
        (("to=new", *SETTINGS, "shard=3"), "shard: 3 is out of range"),
        (("to=new", "data.path=files", "shards=0"), "shards: 0 is out of range"),
        (("data.path=files",), "to: is missing"),
        (("to=new", "data=tales"), "data.n_bytes: no such setting"),
        (("to=new", *SETTINGS, "data.deduplicate=true"), "data.deduplicate: give it to train.py"),
        (("to=new", "data.path=nothing"), "data.path: nothing does not exist"),
        (("to=new", f"data.path={__file__}"), "data.path: is a single text"),
    ],
)
def test_mistakes_are_one_line(folder: Path, settings: tuple[str, ...], problem: str) -> None:
    assert problem in fail("prepare", *settings, cwd=folder)
    assert not (folder / "new").exists()


def test_a_full_disk_and_more_shards_than_files(folder: Path) -> None:
    settings = ("to=small", "data.path=files/0.jsonl.gz", "tokenizer=byte", "shards=2")
    done = in_new_interpreter("prepare", *settings, cwd=folder, limit="ulimit -f 8")
    assert done.returncode == 2 and "error: to: small" in done.stderr, done.stderr
    output = succeed("prepare", *settings, cwd=folder)
    assert "1 file, 100 documents" in output and "no files, since there are fewer" in output


def test_another_tokenizer_is_refused(folder: Path) -> None:
    problem = fail("train", "data=text", "data.path=whole", "tokenizer=byte", cwd=folder)
    assert "give tokenizer=bpe tokenizer.vocab_size=300" in problem


def test_changed_files_replace_their_shard(folder: Path) -> None:
    (folder / "two").mkdir()
    for name in "ab":
        write_lines(folder / "two" / f"{name}.jsonl", TEXTS[:50])
    settings = ("to=changed", "data.path=two", "tokenizer=byte", "shards=2")
    succeed("prepare", *settings, cwd=folder)
    write_lines(folder / "two" / "b.jsonl", TEXTS[:40])
    output = succeed("prepare", *settings, cwd=folder)
    assert output.count("prepared before") == 1
    assert len(list((folder / "changed").glob("0*"))) == 2


def test_a_file_stays_in_its_shard(folder: Path) -> None:
    """Sizes change between two jobs, and each writes one shard: no file is in none, or in two."""
    (folder / "uneven").mkdir()
    for n in range(1, 5):
        write_lines(folder / f"uneven/{n}.jsonl", TEXTS[100 * n : 100 * n + 20 * n])
    settings = ("to=staying", "data.path=uneven", "tokenizer=byte", "shards=2")
    succeed("prepare", *settings, cwd=folder)
    write_lines(folder / "uneven/1.jsonl", TEXTS[:100])
    for number in range(2):
        succeed("prepare", *settings, f"shard={number}", cwd=folder)
    config = preset("data", "text", path=str(folder / "staying"))
    _, dataset = load_dataset(config, TokenizerConfig("byte", None), folder / ".cache", 1)
    found = documents(dataset, "train") + documents(dataset, "val")
    expected = TEXTS[:100] + TEXTS[200:240] + TEXTS[300:360] + TEXTS[400:480]
    assert sorted(found) == sorted(expected)


def test_a_damaged_tokenizer_is_written_again(folder: Path) -> None:
    expected = contents(folder / "whole")
    (folder / "whole/tokenizer/tokenizer.tiktoken").unlink()
    problem = fail("train", "data=text", "data.path=whole", cwd=folder)
    assert "has no intact tokenizer" in problem and "prepare.py" in problem
    output = succeed("prepare", "to=whole", *SETTINGS, cwd=folder)
    assert output.count("prepared before") == 3
    assert contents(folder / "whole") == expected


def test_files_are_spread_by_their_sizes() -> None:
    sources = [Source(f"{n}", size, "") for n, size in enumerate([5, 9, 1, 3, 8, 2, 7, 1])]
    shards = assign(sources, 3)
    sizes = [0, 0, 0]
    for source, shard in zip(sources, shards, strict=True):
        sizes[shard] += source.size or 0
    assert sizes == [12, 12, 12]
    assert assign(sources[::-1], 3) == shards[::-1]
    assert sorted(assign(sources[:2], 3)) == [0, 1]


def test_a_folder_that_is_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "shards.json").write_text("{}")
    with pytest.raises(UserError, match=r"shards\.json is damaged"):
        load_dataset(preset("data", "text", path=str(tmp_path)), BYTE, tmp_path / ".cache", 8)


def test_shards_of_different_files_do_not_mix(folder: Path) -> None:
    (folder / "grows").mkdir()
    write_lines(folder / "grows" / "a.jsonl", TEXTS[:50])
    settings = ("to=grown", "data.path=grows", "tokenizer=byte", "shards=2")
    succeed("prepare", *settings, "shard=0", cwd=folder)
    write_lines(folder / "grows" / "b.jsonl", TEXTS[50:90])
    assert "shards of other" in fail("prepare", *settings, "shard=1", cwd=folder)


def test_a_mistake_can_be_corrected(folder: Path) -> None:
    settings = ("to=corrected", "data.path=files", "tokenizer.vocab_size=300")
    assert "no key 'txet'" in fail("prepare", *settings, "data.field=txet", cwd=folder)
    succeed("prepare", *settings, cwd=folder)


@pytest.mark.parametrize("setting", ["field=body", "separator=zz", "exclude=*"])
def test_what_prepare_decided_is_refused(folder: Path, setting: str) -> None:
    problem = fail("train", "data=text", "data.path=whole", f"data.{setting}", cwd=folder)
    assert f"data.{setting.partition('=')[0]}: has no effect" in problem


def test_shards_know_their_validation_split(folder: Path) -> None:
    problem = fail("train", "data=text", "data.path=whole", "data.val_fraction=0.2", cwd=folder)
    assert "give data.val_fraction=0.1" in problem
    problem = fail("prepare", "to=again", "data.path=whole", cwd=folder)
    assert "has shards that prepare.py made" in problem
