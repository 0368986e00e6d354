"""Tiny Shakespeare from a URL: only a verified file is kept."""

from __future__ import annotations

import hashlib
import http.client
from pathlib import Path
from unittest import mock

import pytest

from common.errors import UserError
from data.corpus import text_of
from data.shakespeare import ShakespeareConfig, open_shakespeare
from launch.schema import preset

PLAY = b"First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 3000
REAL = Path(__file__).parents[3] / "shared" / "tinyshakespeare" / "input.txt"


def config(**settings: object) -> ShakespeareConfig:
    return preset("data", "shakespeare", sha256=hashlib.sha256(PLAY).hexdigest(), **settings)


def test_a_file_is_downloaded_once_and_again_if_it_is_damaged(tmp_path: Path) -> None:
    source = tmp_path / "play.txt"
    settings = config(url=source.as_uri(), cache_dir=str(tmp_path / "cache"))
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
        open_shakespeare(config(url="file:///play.txt", cache_dir=str(tmp_path / "deep/cache")))
    message = str(caught.value)
    assert message.startswith("data.url: file:///") and problem in message and "\n" not in message
    assert "data.path=" in message and not [*tmp_path.iterdir()]


def test_a_local_copy_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_bytes(PLAY)
    corpus = open_shakespeare(config(path=str(tmp_path / "play.txt"), url="nowhere"))
    assert "".join([*text_of(corpus, "train"), *text_of(corpus, "val")]).encode() == PLAY


def test_for_another_text_the_text_corpus_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "prose.txt").write_text("Call me Ishmael.")
    with pytest.raises(UserError, match=r"^data\.path: .*data=text data\.path=.*prose\.txt$"):
        open_shakespeare(config(path=str(tmp_path / "prose.txt")))


@pytest.mark.skipif(not REAL.is_file(), reason=f"the real file is not at {REAL}")
def test_the_real_file_is_the_one_the_settings_expect() -> None:
    corpus = open_shakespeare(preset("data", "shakespeare", path=str(REAL)))
    train, val = ("".join(text_of(corpus, split)) for split in ("train", "val"))
    assert (len(train), len(val)) == (1003854, 111540)  # as in nanoGPT
    assert train.startswith("First Citizen:\n")
