"""TensorBoard's backend of the Attention tab. Routes:

    runs                  JSON: steps {run: {tag: [step, ...]}}, and versions {run: text}; a run's
                          version changes when its old steps change
    maps?run=&tag=&step=  header and maps in the format of summary.py
    scores?run=&tag=      JSON with names, steps and heads; then float32 (step, score, head)

The last two respond with the length of the JSON as a uint32, the JSON, and the binary data.
Requests name runs, not files; a run that is not in the index is not found. Only a local --logdir is
read.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any

from tensorboard.backend.http_util import Respond
from tensorboard.plugins.base_plugin import FrontendMetadata, TBContext, TBPlugin
from werkzeug import Request, Response

from tensorboard_attention.export import MODULES, STATIC, STYLE
from tensorboard_attention.index import Index
from tensorboard_attention.summary import PLUGIN_NAME

ENTRY = "index.js"
ABSENT = (LookupError, ValueError, OSError)


class AttentionPlugin(TBPlugin):
    """TensorBoard finds this class through the entry point `tensorboard_plugins`."""

    plugin_name = PLUGIN_NAME

    def __init__(self, context: TBContext) -> None:
        # Path.expanduser would raise for an unknown user; TensorBoard does not.
        self._index = Index(os.path.expanduser(context.logdir or ""))  # noqa: PTH111

    def is_active(self) -> bool:
        self._index.refresh()
        return bool(self._index.steps())

    def frontend_metadata(self) -> FrontendMetadata:
        return FrontendMetadata(es_module_path=f"/{ENTRY}", tab_name="Attention")

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        apps = {f"/{name}": _file(name) for name in (*MODULES, ENTRY, STYLE)}
        answers = {"/runs": self._runs, "/maps": self._maps, "/scores": self._scores}
        return apps | {route: Request.application(answer) for route, answer in answers.items()}

    def _runs(self, request: Request) -> Response:
        self._index.refresh()
        found = {"steps": self._index.steps(), "versions": self._index.versions()}
        return Respond(request, json.dumps(found), "application/json")

    def _maps(self, request: Request) -> Response:
        try:
            query = request.args
            header, maps = self._index.maps(query["run"], query["tag"], int(query["step"]))
        except ABSENT:
            return _not_found(request)
        return _framed(request, header, maps)

    def _scores(self, request: Request) -> Response:
        try:
            header, values = self._index.scores(request.args["run"], request.args["tag"])
        except (*ABSENT, TypeError, MemoryError):  # or the header is damaged
            return _not_found(request)
        return _framed(request, json.dumps(header).encode(), values.tobytes())


def _framed(request: Request, header: bytes, rest: bytes) -> Response:
    header += b" " * (-len(header) % 4)  # aligns the floats; JSON may end in spaces
    body = struct.pack("<I", len(header)) + header + rest
    return Respond(request, body, "application/octet-stream")


def _not_found(request: Request) -> Response:
    return Respond(request, "no such maps", "text/plain", code=404)


def _file(name: str) -> Callable[..., Any]:
    kind = "text/css" if name == STYLE else "text/javascript"
    return Request.application(
        lambda request: Respond(request, (STATIC / name).read_text("utf-8"), kind)
    )
