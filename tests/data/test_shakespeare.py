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


def config(source: Path, cache: Path) -> ShakespeareConfig:
    sha256 = hashlib.sha256(PLAY).hexdigest()
    url, cache_dir = source.as_uri(), str(cache)
    return preset("data", "shakespeare", url=url, sha256=sha256, cache_dir=cache_dir)


def test_a_good_file_is_downloaded_once(tmp_path: Path) -> None:
    source = tmp_path / "play.txt"
    source.write_bytes(PLAY)
    for _ in range(2):
        corpus = open_shakespeare(config(source, tmp_path / "cache"))
        assert "".join(text_of(corpus, "train")).encode() == PLAY[: int(len(PLAY) * 0.9)]
        assert "".join(text_of(corpus, "val")).encode() == PLAY[int(len(PLAY) * 0.9) :]
        source.unlink(missing_ok=True)


def test_a_damaged_cached_file_is_downloaded_again(tmp_path: Path) -> None:
    source = tmp_path / "play.txt"
    source.write_bytes(PLAY)
    for _ in range(2):
        open_shakespeare(config(source, tmp_path / "cache"))
        (cached,) = tmp_path.rglob("input.txt")
        assert cached.read_bytes() == PLAY
        cached.write_bytes(PLAY[:-1])


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
        open_shakespeare(config(tmp_path / "play.txt", tmp_path / "deep/cache"))
    message = str(caught.value)
    assert message.startswith("data.url: file:///")
    assert problem in message
    assert "data.path=" in message
    assert "\n" not in message
    assert not [*tmp_path.iterdir()]


def test_a_local_copy_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_bytes(PLAY)
    settings = preset(
        "data",
        "shakespeare",
        path=str(tmp_path / "play.txt"),
        sha256=hashlib.sha256(PLAY).hexdigest(),
        url="nowhere",
    )
    corpus = open_shakespeare(settings)
    assert "".join([*text_of(corpus, "train"), *text_of(corpus, "val")]).encode() == PLAY


def test_for_another_text_the_text_corpus_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "prose.txt").write_text("Call me Ishmael.")
    with pytest.raises(UserError, match=r"^data\.path: .*data=text data\.path=.*prose\.txt$"):
        open_shakespeare(preset("data", "shakespeare", path=str(tmp_path / "prose.txt")))


@pytest.mark.skipif(not REAL.is_file(), reason=f"the real file is not at {REAL}")
def test_the_real_file_is_the_one_the_settings_expect() -> None:
    corpus = open_shakespeare(preset("data", "shakespeare", path=str(REAL)))
    train, val = ("".join(text_of(corpus, split)) for split in ("train", "val"))
    assert (len(train), len(val)) == (1003854, 111540)  # as in nanoGPT
    assert train.startswith("First Citizen:\n")
