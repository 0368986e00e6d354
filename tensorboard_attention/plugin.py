"""The Attention tab's side of TensorBoard: which runs have maps, and their bytes.

    runs                  JSON: steps {run: {tag: [step, ...]}}, and versions {run: text}, which
                          change when a run's old steps do
    maps?run=&tag=&step=  header and maps as summary.py writes them
    scores?run=&tag=      JSON with names, steps and heads; then float32 (step, score, head)

The last two answer with the length of the JSON as a uint32, the JSON, and the rest. Requests name
runs, never files: what the index does not know is not found. The log folder is a local one, given
by --logdir.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorboard.backend.http_util import Respond
from tensorboard.plugins.base_plugin import FrontendMetadata, TBContext, TBPlugin
from werkzeug import Request, Response

from tensorboard_attention import PLUGIN_NAME
from tensorboard_attention.index import Index

STATIC = Path(__file__).parent / "static"
# In the order in which they import each other.
MODULES = (
    "dom.js",
    "colours.js",
    "maps.js",
    "source.js",
    "state.js",
    "controls.js",
    "grid.js",
    "picture.js",
    "words.js",
    "panel.js",
    "scores.js",
    "theme.js",
    "keys.js",
    "app.js",
)
ABSENT = (LookupError, ValueError, OSError)
ENTRY, STYLE = "index.js", "style.css"


class AttentionPlugin(TBPlugin):
    """What TensorBoard finds through the entry point `tensorboard_plugins`."""

    plugin_name = PLUGIN_NAME

    def __init__(self, context: TBContext) -> None:
        # As TensorBoard itself does, which minds no user that is unknown.
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
            header, maps = self._index.maps(*_which(request), int(request.args["step"]))
        except ABSENT:
            return _not_found(request)
        return _framed(request, header, maps)

    def _scores(self, request: Request) -> Response:
        try:
            header, values = self._index.scores(*_which(request))
        except (*ABSENT, TypeError, MemoryError):  # or a damaged header
            return _not_found(request)
        return _framed(request, json.dumps(header).encode(), values.tobytes())


def _which(request: Request) -> tuple[str, str]:
    return request.args["run"], request.args["tag"]


def _framed(request: Request, header: bytes, rest: bytes) -> Response:
    # JSON may end in spaces: they align the floats that follow.
    header += b" " * (-len(header) % 4)
    body = struct.pack("<I", len(header)) + header + rest
    return Respond(request, body, "application/octet-stream")


def _not_found(request: Request) -> Response:
    return Respond(request, "no such maps", "text/plain", code=404)


def _file(name: str) -> Callable[..., Any]:
    kind = "text/css" if name == STYLE else "text/javascript"

    @Request.application
    def serve(request: Request) -> Response:
        return Respond(request, (STATIC / name).read_text("utf-8"), kind)

    return serve
