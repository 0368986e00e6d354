"""Files from elsewhere: a web server that cuts connections, an object store, fsspec's memory."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import fsspec
import pytest
from moto.server import ThreadedMotoServer

from common.errors import UserError
from configs.schema import preset
from data.corpora import open_corpus
from data.sources import Source, find
from tests.conftest import ROOT
from tests.data.test_documents import documents, draw_texts, lines, read, table, zstd

TEXTS = draw_texts(4000)
SERVED = {
    "/a.jsonl": lines(TEXTS[:2000]),
    "/b.jsonl.gz": gzip.compress(lines(TEXTS[2000:2500])),
    "/c.jsonl.zst": zstd(lines(TEXTS[2500:3000])),
    "/d.parquet": table(TEXTS[3000:]),
    "/notes.txt": b"Once there was a hen. " * 500,
}


class Handler(BaseHTTPRequestHandler):
    """Serves SERVED, which was changed at the time `modified`. `cuts` connections are cut after
    `after` bytes of a body."""

    cuts, after, ranges, modified = 0, 0, True, ""

    def do_GET(self) -> None:
        kind = type(self)
        data = SERVED.get(self.path.partition("?")[0])
        if data is None:
            return self.send_error(404)
        first, last = 0, len(data) - 1
        asked = self.headers.get("Range")
        if asked and kind.ranges:
            start, _, stop = asked.removeprefix("bytes=").partition("-")
            first, last = int(start), min(int(stop or last), last)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        else:
            self.send_response(200)
        if kind.ranges:
            self.send_header("Accept-Ranges", "bytes")
        if kind.modified:
            self.send_header("Last-Modified", kind.modified)
        is_page = self.path.endswith("/")
        self.send_header("Content-Type", "text/html" if is_page else "application/octet-stream")
        body = data[first : last + 1]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            if kind.cuts and len(body) > kind.after:
                kind.cuts -= 1
                body = body[: kind.after]
                self.close_connection = True
            self.wfile.write(body)
        return None

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    Handler.cuts, Handler.after, Handler.ranges, Handler.modified = 0, 0, True, ""
    fsspec.get_filesystem_class("http").clear_instance_cache()
    with ThreadingHTTPServer(("localhost", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("path", ["/a.jsonl", "/b.jsonl.gz", "/c.jsonl.zst", "/d.parquet"])
def test_a_file_of_the_web_is_read_as_a_local_one(
    web: str, tmp_path: Path, path: str, ranges: bool
) -> None:
    Handler.ranges = ranges
    (tmp_path / path[1:]).write_bytes(SERVED[path])
    local, remote = (read(f"{each}{path}", tmp_path / "cache") for each in (tmp_path, web))
    for split in ("train", "val"):
        assert documents(remote, split) == documents(local, split)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("path", ["/a.jsonl", "/b.jsonl.gz", "/d.parquet", "/notes.txt"])
def test_a_connection_that_is_cut_is_an_error(
    web: str, tmp_path: Path, path: str, ranges: bool
) -> None:
    """And never the end of the text."""
    Handler.cuts, Handler.after, Handler.ranges = 10**9, 1000, ranges
    with pytest.raises(UserError, match=rf"^data\.path: .*{path} (cannot be read|is damaged)"):
        read(web + path, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


def test_what_a_server_does_not_have(web: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.jsonl cannot be read \(404, .*Not Found"):
        read(web + "/nothing.jsonl", tmp_path / "cache")
    with pytest.raises(UserError, match=r"^data\.path: .*cannot be read \(.*[Cc]onnect"):
        read("http://localhost:1/a.jsonl", tmp_path / "cache")
    with pytest.raises(UserError, match=r"^data\.path: nonsense://"):
        read("nonsense://a.jsonl", tmp_path / "cache")


def test_a_page_is_no_text_but_names_files(
    web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SERVED, "/folder/", b'<a href="x.jsonl">x</a> <a href="y.txt">y</a>')
    monkeypatch.setitem(SERVED, "/folder/x.jsonl", SERVED["/a.jsonl"])
    with pytest.raises(UserError, match=r"^data\.path: .*/folder/ is a web page"):
        read(web + "/folder/", tmp_path / "cache")
    (source,) = find(web + "/folder/*.jsonl")
    assert source == find(web + "/folder/x.jsonl")[0]
    assert source.size == len(SERVED["/a.jsonl"])


def test_a_change_on_the_web_is_noticed(
    web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its time, if the server sends it; the size is the same."""
    first = read(web + "/a.jsonl", tmp_path / "cache")
    monkeypatch.setitem(SERVED, "/a.jsonl", lines(TEXTS[1999::-1]))
    assert read(web + "/a.jsonl", tmp_path / "cache").sha256 == first.sha256
    for day in (10, 11):
        Handler.modified = f"Tue, {day} Nov 2026 12:00:00 GMT"
        assert read(web + "/a.jsonl", tmp_path / "cache").sha256 != first.sha256
    assert len(list((tmp_path / "cache").glob("tokens-*"))) == 3


def test_a_single_text_of_the_web_keeps_its_last_tenth(web: str, tmp_path: Path) -> None:
    dataset = read(web + "/notes.txt?version=1", tmp_path / "cache")
    text = dataset.tokenizer.decode_bytes([*dataset.train[:].tolist(), *dataset.val[:].tolist()])
    assert text == SERVED["/notes.txt"] and len(dataset.val) == len(text) // 10


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The address of an object store with SERVED in a bucket."""
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host.replace('0.0.0.0', 'localhost')}:{port}"
    names = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": url}
    names |= {"AWS_DEFAULT_REGION": "us-east-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=url)
        client.create_bucket(Bucket="corpus")
        for name, data in SERVED.items():
            if name != "/notes.txt":
                client.put_object(Bucket="corpus", Key=f"deep{name}", Body=data)
        client.put_object(Bucket="corpus", Key="deep/folder/", Body=b"")  # as web consoles do
        client.put_object(Bucket="corpus", Key="deep/.hidden.jsonl", Body=b"hidden")
        yield url
    server.stop()


def test_an_object_store(store: str, tmp_path: Path) -> None:
    dataset = read("s3://corpus/deep", tmp_path / "cache")
    found = documents(dataset, "train") + documents(dataset, "val")
    assert sorted(found) == sorted(TEXTS)
    some = read("s3://corpus/deep/*.jsonl*", tmp_path / "cache", exclude="*.zst")
    found = documents(some, "train") + documents(some, "val")
    assert sorted(found) == sorted(TEXTS[:2500])
    with pytest.raises(UserError, match="has no files"):
        find("s3://corpus/deep/*.txt")


def test_a_change_in_a_store_is_noticed(store: str) -> None:
    client = boto3.client("s3", endpoint_url=store)
    found = []
    for texts in (TEXTS[50:100], TEXTS[100:150]):
        client.put_object(Bucket="corpus", Key="more/b.jsonl", Body=lines(texts))
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        found += [source.fingerprint for source in find("s3://corpus/more")]
    assert len({*found}) == 2


def test_the_web_is_not_asked_for_the_data_of_a_stranger_s_run(web: str) -> None:
    with pytest.raises(UserError, match=r"the run names http.*confirm with data=text"):
        open_corpus(preset("data", "text", path=web + "/a.jsonl"), trusted=False)


WITHOUT = """
import sys
for name in ("fsspec.core", "pyarrow"):
    sys.modules[name] = None
from configs.schema import preset
from data.corpora import open_corpus
from data.tokenizer import TokenizerConfig
from data.tokens import prepare
from common.errors import UserError
for path in sys.argv[2:]:
    try:
        prepare(open_corpus(preset("data", "text", path=path)), TokenizerConfig("byte", None),
                sys.argv[1], 8)
        print("read")
    except UserError as error:
        print(error)
"""


def test_without_the_extra_the_message_says_what_to_install(tmp_path: Path) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "b.jsonl.zst", tmp_path / "c.jsonl.gz"]
    paths[0].write_bytes(table(TEXTS[:50]))
    paths[1].write_bytes(zstd(lines(TEXTS[:50])))
    paths[2].write_bytes(gzip.compress(lines(TEXTS[:50])))
    output = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path / "cache"), *map(str, paths), "s3://a/b"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).stdout
    parquet, zst, gz, remote = output.splitlines()
    assert gz == "read"
    for line, library in ((parquet, "pyarrow"), (zst, "pyarrow"), (remote, "fsspec")):
        assert library in line and '".[scale]"' in line


def test_suffixes() -> None:
    for name, expected in {
        "a.jsonl": (".jsonl", ""),
        "a.JSONL.GZ": (".jsonl", ".gz"),
        "a.b.txt.zst": (".txt", ".zst"),
        "archive.gz": ("", ".gz"),
        "README": ("", ""),
    }.items():
        assert Source(name, 0, "").suffixes == expected
    assert json.loads(find(__file__)[0].fingerprint)[1] == Path(__file__).stat().st_size
