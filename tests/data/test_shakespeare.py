"""Tiny Shakespeare from a real, local HTTP server: only a verified file is kept."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from common.errors import UserError
from data.corpus import text_of
from data.shakespeare import ShakespeareConfig, open_shakespeare
from launch.schema import preset

PLAY = b"First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 3000
REAL = Path(__file__).parents[3] / "shared" / "tinyshakespeare" / "input.txt"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requests.append(self.path)  # type: ignore[attr-defined]
        if self.path == "/error":
            self.send_error(500)
            return
        body = PLAY.replace(b"Citizen", b"Senator") if self.path == "/wrong" else PLAY
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.path == "/broken" else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.requests = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def config(server: ThreadingHTTPServer, page: str, cache: Path) -> ShakespeareConfig:
    return preset(
        "data",
        "shakespeare",
        url=f"http://127.0.0.1:{server.server_port}{page}",
        sha256=hashlib.sha256(PLAY).hexdigest(),
        cache_dir=str(cache),
    )


def test_a_good_file_is_downloaded_once(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    settings = config(server, "/good", tmp_path / "cache")
    for _ in range(2):
        corpus = open_shakespeare(settings)
        assert "".join(text_of(corpus, "train")).encode() == PLAY[: int(len(PLAY) * 0.9)]
        assert "".join(text_of(corpus, "val")).encode() == PLAY[int(len(PLAY) * 0.9) :]
    assert server.requests == ["/good"]  # type: ignore[attr-defined]


def test_a_damaged_cached_file_is_downloaded_again(
    server: ThreadingHTTPServer, tmp_path: Path
) -> None:
    settings = config(server, "/good", tmp_path)
    open_shakespeare(settings)
    (cached,) = tmp_path.rglob("input.txt")
    cached.write_bytes(PLAY[:-1])
    open_shakespeare(settings)
    assert cached.read_bytes() == PLAY
    assert len(server.requests) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("/wrong", "its SHA-256 differs"),
        ("/error", "HTTP Error 500"),
        ("/broken", f"IncompleteRead({len(PLAY) // 2} bytes read, {len(PLAY) // 2} more"),
    ],
)
def test_a_failed_download_leaves_nothing(
    server: ThreadingHTTPServer, tmp_path: Path, page: str, problem: str
) -> None:
    with pytest.raises(UserError) as caught:
        open_shakespeare(config(server, page, tmp_path / "deep/cache"))
    message = str(caught.value)
    assert message.startswith("data.url: http://127.0.0.1")
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
