"""Models are fetched from the Hugging Face hub: here from a server that answers as the hub does."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from exchange.hub import is_hub_name
from tests.conftest import command

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves the files of `folder` as the model someone/small, as far as fetching it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.fetched = folder, list[str]()
        self.server = make_server("127.0.0.1", 0, Request.application(self.answer), threaded=True)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: Request) -> Response:
        if request.path == "/api/models/someone/small/revision/main":
            names = [{"rfilename": each.name} for each in sorted(self.folder.iterdir())]
            about = {"id": "someone/small", "sha": COMMIT, "siblings": names, "tags": []}
            return _json(about)
        if request.path == f"/api/models/someone/small/tree/{COMMIT}":
            files = sorted(self.folder.iterdir())
            return _json(
                [
                    {
                        "type": "file",
                        "path": each.name,
                        "size": each.stat().st_size,
                        "oid": "0" * 40,
                    }
                    for each in files
                ]
            )
        _, _, name = request.path.partition(f"/someone/small/resolve/{COMMIT}/")
        if not name or not (self.folder / name).is_file():
            return Response("no such model", 404, {"X-Error-Code": "RepoNotFound"})
        contents = (self.folder / name).read_bytes()
        if request.method == "GET":
            self.fetched.append(name)
        tag = f'"{hashlib.sha1(contents).hexdigest()}"'
        return Response(contents, 200, {"ETag": tag, "X-Repo-Commit": COMMIT})


def _json(value: object) -> Response:
    return Response(json.dumps(value), content_type="application/json")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "on the hub"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    (folder / "modeling.py").write_text("raise SystemExit")
    hub = Hub(folder)
    thread = threading.Thread(target=hub.server.serve_forever)
    thread.start()
    yield hub
    hub.server.shutdown()
    thread.join()


def fetch(name: str, address: str, cwd: Path) -> str:
    here = {"HF_ENDPOINT": address, "HF_HOME": str(cwd / "cache"), "HF_HUB_DISABLE_XET": "1"}
    done = command("convert", f"source={name}", "to=imported", cwd=cwd, **here)
    assert done.returncode == 2 and not (cwd / "imported").exists()
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("error: ")]
    return line


def test_a_name_on_the_hub_is_fetched_without_code(tmp_path: Path, hub: Hub) -> None:
    assert "config.json: model_type: 'bert'" in fetch("someone/small", hub.address, tmp_path)
    assert hub.fetched == ["config.json"]


def test_a_model_that_is_not_there(tmp_path: Path, hub: Hub) -> None:
    assert "no such model, or it is private" in fetch("someone/other", hub.address, tmp_path)


def test_no_network(tmp_path: Path) -> None:
    assert "the hub cannot be reached" in fetch("someone/small", "http://127.0.0.1:9", tmp_path)


def test_names_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("openai-community/gpt2")
    (tmp_path / "models").mkdir()
    for path in ("models/gpt2", "runs/latest", "gpt2", "a/b/c", "/a", "../a", "a/b c", "ä/b"):
        assert not is_hub_name(path), path
