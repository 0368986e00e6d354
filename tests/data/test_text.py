"""A corpus of one text: exact bytes, order, split, errors; which files are found; and tiny
Shakespeare, of which only a verified file is kept."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import http.client
import lzma
import os
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import data.decoding
from common.errors import UserError
from data.corpus import text_of
from data.files import find_files
from data.shakespeare import ShakespeareConfig, open_shakespeare
from data.text import Texts, open_text
from launch.schema import preset


def open_at(path: Path | str | None, **settings: object) -> Texts:
    return open_text(preset("data", "text", path=path and str(path), **settings))


def names(path: Path | str) -> list[str]:
    """The files that are found, by the first letter of their contents."""
    return [each.read_text()[:1] for each in find_files(str(path))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("text")


@given(
    text=st.text(min_size=1) | st.sampled_from(["\ufeffa\r\n\0b", "\0"]),
    val_fraction=st.floats(0.01, 1),
    block=st.integers(1, 9),
)
def test_both_splits_hold_the_exact_bytes_split_between_characters(
    folder: Path, text: str, val_fraction: float, block: int
) -> None:
    encoded = text.encode()
    (folder / "any.txt").write_bytes(encoded)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data.decoding, "BLOCK", block)
        corpus = open_at(folder / "any.txt", val_fraction=val_fraction)
        train, val = ("".join(text_of(corpus, split)) for split in ("train", "val"))
    assert train.encode() + val.encode() == encoded
    assert train == encoded[: int(len(encoded) * (1 - val_fraction))].decode(errors="ignore")


def write_tree(root: Path) -> None:
    files = {
        "b.txt": "B",
        "a/z.txt": "Z",
        "a/deep/er.md": "DEEP",
        "a.txt": "A",
        ".hidden": "no",
        "a/.git/config": "no",
        "empty.txt": "",
        "a/z.txt~": "backup",
        "#b.txt#": "backup",
        "b\n.txt.bak": "backup",
        "c.bak": "backup",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_a_folder_is_read_in_sorted_order_without_hidden_files_and_backups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree(tmp_path)
    assert names(tmp_path) == ["A", "D", "Z", "B", ""]
    left = "#b.txt#, .hidden, a/.git, a/z.txt~, b\\n.txt.bak and 1 more"
    note = f"note: hidden files, backups, broken links and runs are left out: {left}\n"
    assert capsys.readouterr().err == note


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("**/*.txt", "AZB"), ("a/**", "DZ"), ("[ab].txt", "AB"), ("**/*~", "b")],
)
def test_a_glob_is_read_in_sorted_order(tmp_path: Path, pattern: str, expected: str) -> None:
    """The name of a folder is none."""
    folder = tmp_path / "arch [2021]" / "a*b"
    write_tree(folder)
    assert "".join(names(folder / pattern)) == expected


def test_the_fingerprint_depends_on_both_splits(tmp_path: Path) -> None:
    found = []
    for text, val_fraction in (("one", 0.5), ("one", 0.5), ("two", 0.5), ("one", 0.1)):
        (tmp_path / "a.txt").write_text(text)
        found.append(open_at(tmp_path / "a.txt", val_fraction=val_fraction).fingerprint())
    assert found[0] == found[1] and len({*found}) == 3


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (None, "is not set"),
        ("bare", "bare contains no files"),
        ("*.nothing", "*.nothing matches no files"),
        ("left", "left contains no files but .hidden.md, a.txt~ (left out)"),
        ("left/*", "matches no files but left/a.txt~ (left out)"),
        ("empty.txt", "empty.txt is empty"),
        ("cut.txt", "cut.txt is not UTF-8 (byte 4)"),
        ("pipe", "pipe is neither a file nor a folder"),
        ("https://host/a.txt", "is a URL, which data=dataset reads"),
    ],
)
def test_unusable_text_is_rejected_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bare").mkdir()
    Path("left").mkdir()
    Path("left/.hidden.md").touch()
    Path("left/a.txt~").touch()
    Path("empty.txt").write_bytes(b"")
    Path("cut.txt").write_bytes(b"abcd\xe4\xb8")
    os.mkfifo("pipe")
    with pytest.raises(UserError) as caught:
        open_at(path)
    message = str(caught.value)
    assert message.startswith("data.path: ") and problem in message and "\n" not in message


TALE = "Однажды в лесу жила курица.\n" * 9


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (TALE.encode("utf-16"), "is UTF-16LE, .* -f UTF-16LE"),
        (TALE.encode("utf-16-be"), "is UTF-16BE, .* -f UTF-16BE"),
        (TALE.encode("utf-32"), "is UTF-32LE, .* -f UTF-32LE"),
        (b"na\xefve caf\xe9, \xe0 bient\xf4t\r\n", r"is not UTF-8 \(byte 2\); .*-f WINDOWS-1252"),
        (gzip.compress(b"a hen", mtime=0), "is compressed, or a table"),
        *((module.compress(b"a hen"), "is compressed, or a table") for module in (bz2, lzma)),
    ],
)
def test_what_else_a_file_is_is_recognised(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UserError, match=rf"a\.txt {problem}"):
        open_at(tmp_path / "a.txt")


@given(before=st.text(), after=st.binary(max_size=9), size=st.integers(1, 7))
def test_the_offset_of_a_bad_byte_is_exact(
    folder: Path, before: str, after: bytes, size: int
) -> None:
    # Otherwise it could begin as UTF-16 or an image does.
    encoded = b"Once " + before.encode() + b"\xff" + after
    with pytest.raises(UnicodeDecodeError) as error:
        encoded.decode()
    (folder / "bad.txt").write_bytes(encoded)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data.decoding, "BLOCK", size)
        place = rf"bad.txt is not UTF-8 \(byte {error.value.start:,}\)"
        with pytest.raises(UserError, match=place):
            open_at(folder / "bad.txt")


def test_runs_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise a run in a folder of texts would be trained on its own log."""
    for run in ("runs/a", "runs/sweep/b"):
        for name in ("config.yaml", "tokenizer/tokenizer.json", "train.log"):
            (tmp_path / run / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / run / name).touch()
    (tmp_path / "runs/notes.md").touch()
    assert find_files(str(tmp_path)) == [tmp_path / "runs/notes.md"]
    assert capsys.readouterr().err.endswith(" runs are left out: runs/a, runs/sweep/b\n")
    for path in ("runs/a", "runs/a/train.log", "runs/*/train.log"):  # that the user names
        assert tmp_path / "runs/a/train.log" in find_files(str(tmp_path / path))


@pytest.mark.parametrize("pattern", ["", "/**/*"])
def test_links_in_circles_are_followed_once(tmp_path: Path, pattern: str) -> None:
    folder = tmp_path / "mix"
    folder.mkdir()
    (folder / "a.txt").write_text("Once.")
    (folder / "loop").symlink_to(".")
    (folder / "same.txt").symlink_to("a.txt")
    assert names(f"{folder}{pattern}") == ["O"]


def test_links_to_folders_are_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, other = tmp_path / "mix", tmp_path / "other"
    for each in (folder, other):
        each.mkdir()
        (each / f"{each.name}.txt").write_text(each.name)
    (folder / "more").symlink_to(other)
    (other / "back").symlink_to(folder)
    (folder / "gone").symlink_to("nowhere")
    found = find_files(str(folder))
    assert found == [folder / "mix.txt", folder / "more/other.txt"]
    assert capsys.readouterr().err.endswith(" are left out: gone\n")


PLAY = b"First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 3000
REAL = Path(__file__).parents[3] / "shared" / "tinyshakespeare" / "input.txt"


def shakespeare(**settings: object) -> ShakespeareConfig:
    return preset("data", "shakespeare", sha256=hashlib.sha256(PLAY).hexdigest(), **settings)


def test_a_file_is_downloaded_once_and_again_if_it_is_damaged(tmp_path: Path) -> None:
    source = tmp_path / "play.txt"
    settings = shakespeare(url=source.as_uri(), cache_dir=str(tmp_path / "cache"))
    for cached in (None, PLAY, PLAY[:-1]):
        if cached is not None:
            (file,) = tmp_path.rglob("input.txt")
            file.write_bytes(cached)
        if cached == PLAY:
            source.unlink()
        else:
            source.write_bytes(PLAY)
        corpus = open_shakespeare(settings)
        assert "".join(text_of(corpus, "train")).encode() == PLAY[: int(len(PLAY) * 0.9)]
        assert "".join(text_of(corpus, "val")).encode() == PLAY[int(len(PLAY) * 0.9) :]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (PLAY.replace(b"Citizen", b"Senator"), "its SHA-256 differs"),
        (OSError("HTTP Error 500"), "HTTP Error 500"),
        (http.client.IncompleteRead(PLAY[:99], 1), "IncompleteRead(99 bytes read, 1 more"),
    ],
)
def test_a_failed_download_leaves_nothing(
    tmp_path: Path, answer: bytes | Exception, problem: str
) -> None:
    opened = mock.MagicMock()
    opened.return_value.__enter__.return_value.read.side_effect = [answer]
    with mock.patch("urllib.request.urlopen", opened), pytest.raises(UserError) as caught:
        open_shakespeare(shakespeare(url="file:///play", cache_dir=str(tmp_path / "deep/cache")))
    message = str(caught.value)
    assert message.startswith("data.url: file:///") and problem in message and "\n" not in message
    assert "data.path=" in message and not [*tmp_path.iterdir()]


def test_a_local_copy_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_bytes(PLAY)
    corpus = open_shakespeare(shakespeare(path=str(tmp_path / "play.txt"), url="nowhere"))
    assert "".join([*text_of(corpus, "train"), *text_of(corpus, "val")]).encode() == PLAY


def test_for_another_text_the_text_corpus_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "prose.txt").write_text("Call me Ishmael.")
    with pytest.raises(UserError, match=r"^data\.path: .*data=text data\.path=.*prose\.txt$"):
        open_shakespeare(shakespeare(path=str(tmp_path / "prose.txt")))


@pytest.mark.skipif(not REAL.is_file(), reason=f"the real file is not at {REAL}")
def test_the_real_file_is_the_one_the_settings_expect() -> None:
    corpus = open_shakespeare(preset("data", "shakespeare", path=str(REAL)))
    train, val = ("".join(text_of(corpus, split)) for split in ("train", "val"))
    assert (len(train), len(val)) == (1003854, 111540)  # as in nanoGPT
    assert train.startswith("First Citizen:\n")
