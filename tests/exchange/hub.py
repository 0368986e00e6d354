"""A server that answers as the Hugging Face hub does, as far as fetching a model needs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves the files of `folder` as the model `name`."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.fetched = name, folder, list[str]()
        self.server = make_server("127.0.0.1", 0, Request.application(self.answer), threaded=True)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: Request) -> Response:
        files = sorted(self.folder.iterdir())
        if request.path == f"/api/models/{self.name}/revision/main":
            names = [{"rfilename": each.name} for each in files]
            return _json({"id": self.name, "sha": COMMIT, "siblings": names, "tags": []})
        if request.path == f"/api/models/{self.name}/tree/{COMMIT}":
            about = {"type": "file", "oid": "0" * 40}
            return _json(
                [{"path": each.name, "size": each.stat().st_size, **about} for each in files]
            )
        _, _, name = request.path.partition(f"/{self.name}/resolve/{COMMIT}/")
        if not name or not (self.folder / name).is_file():
            return Response("no such model", 404, {"X-Error-Code": "RepoNotFound"})
        contents = (self.folder / name).read_bytes()
        if request.method == "GET":
            self.fetched.append(name)
        tag = f'"{hashlib.sha1(contents).hexdigest()}"'
        return Response(contents, 200, {"ETag": tag, "X-Repo-Commit": COMMIT})


def _json(value: object) -> Response:
    return Response(json.dumps(value), content_type="application/json")


@contextmanager
def serve(name: str, folder: Path) -> Iterator[Hub]:
    hub = Hub(name, folder)
    thread = threading.Thread(target=hub.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        hub.server.shutdown()
        thread.join()


def environment(address: str, cache: Path) -> dict[str, str]:
    """What makes huggingface_hub use a server and a cache."""
    return {"HF_ENDPOINT": address, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1"}
