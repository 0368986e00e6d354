"""TensorBoard's backend of the Attention tab. Routes:

    runs                  JSON: steps {run: {tag: [step, ...]}}; newest, the run that was logged
                          last; versions {run: text}, where a run's version changes when its old
                          steps change; live [run], those with a live page; followed [run],
                          those that a page can follow; losses {run: text}, those with losses, where
                          the text changes with them; checkpoints {run: {command, steps}}, those
                          from which a run can branch off; notes [text], what is not shown and why;
                          complete, false if some of the log is still to be read
    losses?run=           the losses of tokens of a run, JSON in the format of losses.py
    live?run=             the live page of a run, with a policy that lets it request nothing
    follow?run=           the page that follows a run (following.py)
    follow/steps?run=     JSON: a text for each step that the page can show, which changes with it
    follow/weights?run=&step=
                          the weights of a step
    maps?run=&tag=&step=  header and maps in the format of summary.py
    twins?run=&tag=&step=&run2=&tag2=&step2=
                          JSON: [layer, head, layer, head of its twin, overlap] of each head of two
                          maps of the same text
    scores?run=&tag=      JSON with names, steps, texts (for each step the same number for the same
                          text) and heads; then float32 (step, score, head)

The last two respond with the length of the JSON as a uint32, the JSON, and the binary data.
Requests name runs, not files; unknown runs are not found. --logdir and the folders of --logdir_spec
have to be local.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from tensorboard.backend.http_util import Respond
from tensorboard.plugins.base_plugin import FrontendMetadata, TBContext, TBPlugin
from werkzeug import Request, Response
from werkzeug.wsgi import wrap_file

from tensorboard_attention.checkpoints import find_checkpoints
from tensorboard_attention.export import STATIC, STYLE, script, without_imports
from tensorboard_attention.following import HEADERS as FOLLOWING
from tensorboard_attention.following import find_followed, follow_page, read_weights, steps
from tensorboard_attention.index import Index
from tensorboard_attention.live import HEADERS, find_pages, open_page
from tensorboard_attention.losses import find_losses, read_losses
from tensorboard_attention.summary import PLUGIN_NAME
from tensorboard_attention.twins import match_logged

ENTRY = "index.js"


class AttentionPlugin(TBPlugin):
    """TensorBoard finds this class through the entry point `tensorboard_plugins`."""

    plugin_name = PLUGIN_NAME

    def __init__(self, context: TBContext) -> None:
        folders = {".": context.logdir} if context.logdir else {}
        if context.flags and not folders:
            folders = _log_folders(context.flags.logdir_spec or "")
        # Path.expanduser would raise for an unknown user; TensorBoard does not.
        self._index = Index({name: os.path.expanduser(folder) for name, folder in folders.items()})  # noqa: PTH111

    def is_active(self) -> bool:
        complete = self._index.refresh()
        return bool(self._index.steps() or self._index.notes() or not complete)

    def frontend_metadata(self) -> FrontendMetadata:
        return FrontendMetadata(es_module_path=f"/{ENTRY}", tab_name="Attention")

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        style = (STATIC / STYLE).read_text("utf-8")
        entry = script() + without_imports((STATIC / ENTRY).read_text("utf-8"))
        apps = {f"/{STYLE}": _text(style, "text/css"), f"/{ENTRY}": _text(entry, "text/javascript")}
        apps["/runs"] = Request.application(self._runs)
        apps["/twins"] = Request.application(self._twins)
        apps["/losses"] = Request.application(self._losses)
        apps["/live"] = Request.application(self._live)
        apps["/follow"] = Request.application(self._follow)
        apps["/follow/steps"] = Request.application(self._steps)
        apps["/follow/weights"] = Request.application(self._weights)
        apps["/maps"], apps["/scores"] = _framed(self._maps), _framed(self._scores)
        return apps

    def _runs(self, request: Request) -> Response:
        complete = self._index.refresh()
        found = {
            "steps": self._index.steps(),
            "newest": self._index.newest(),
            "versions": self._index.versions(),
            "live": find_pages(self._index.folders().items()),
            "followed": find_followed(self._index.folders().items()),
            "losses": find_losses(self._index.folders().items()),
            "checkpoints": find_checkpoints(self._index.folders().items()),
            "notes": self._index.notes(),
            "complete": complete,
        }
        return Respond(request, json.dumps(found), "application/json")

    def _losses(self, request: Request) -> Response:
        try:
            text = read_losses(self._index.folders()[request.args["run"]])
        except (LookupError, OSError, ValueError):
            return Respond(request, "no losses", "text/plain", code=404)
        return Respond(request, text, "application/json")

    def _twins(self, request: Request) -> Response:
        maps = []
        try:
            for which in ("", "2"):
                run, tag, step = (request.args[name + which] for name in ("run", "tag", "step"))
                header, packed = self._index.maps(run, tag, int(step))
                maps.append((json.loads(header), packed))
            found = match_logged(*maps)
        except (LookupError, OSError, ValueError, zlib.error):
            return Respond(request, "no twins", "text/plain", code=404)
        rows = [[*twin.head, *twin.twin, round(twin.overlap, 4)] for twin in found]
        return Respond(request, json.dumps(rows), "application/json")

    def _live(self, request: Request) -> Response:
        try:
            file = open_page(self._index.folders()[request.args["run"]])
        except (LookupError, OSError):
            return Respond(request, "no such page", "text/plain", code=404)
        # `Respond` would add TensorBoard's own policy, in which its scripts do not run.
        page = wrap_file(request.environ, file)
        return Response(page, content_type="text/html; charset=utf-8", headers=HEADERS)

    def _follow(self, request: Request) -> Response:
        try:
            page = follow_page(self._index.folders()[request.args["run"]])
        except (ImportError, LookupError, OSError, ValueError):
            return Respond(request, "no such page", "text/plain", code=404)
        # Its own policy is in it, as `Respond` would add TensorBoard's.
        return Response(page, content_type="text/html; charset=utf-8", headers=FOLLOWING)

    def _steps(self, request: Request) -> Response:
        try:
            found = steps(self._index.folders()[request.args["run"]])
        except LookupError:
            return Respond(request, "no such run", "text/plain", code=404)
        return Respond(request, json.dumps(found), "application/json")

    def _weights(self, request: Request) -> Response:
        try:
            folder = self._index.folders()[request.args["run"]]
            data = read_weights(folder, int(request.args["step"]))
        except (LookupError, OSError, ValueError):
            return Respond(request, "no such weights", "text/plain", code=404)
        return Respond(request, data, "application/octet-stream")

    def _maps(self, query: Mapping[str, str]) -> tuple[bytes, bytes]:
        return self._index.maps(query["run"], query["tag"], int(query["step"]))

    def _scores(self, query: Mapping[str, str]) -> tuple[bytes, bytes]:
        header, values = self._index.scores(query["run"], query["tag"])
        return json.dumps(header).encode(), values


def _log_folders(spec: str) -> dict[str, str]:
    """The folders of --logdir_spec=name:folder,..., by name. As in TensorBoard, a name has no slash
    at its start, and a folder may be without one; it is then named after its path."""
    folders = {}
    for part in filter(None, spec.split(",")):
        name, _, folder = part.partition(":")
        if not folder or part[0] == "/" or folder.startswith("//") or os.path.splitdrive(part)[0]:
            name, folder = part, part
        folders[name or folder] = folder
    return folders


def _framed(find: Callable[[Mapping[str, str]], tuple[bytes, bytes]]) -> Callable[..., Any]:
    @Request.application
    def respond(request: Request) -> Response:
        try:
            header, data = find(request.args)
        except (LookupError, ValueError, OSError):  # or the file has changed meanwhile
            return Respond(request, "no such maps", "text/plain", code=404)
        header += b" " * (-len(header) % 4)  # aligns the floats; JSON may end in spaces
        body = b"".join((struct.pack("<I", len(header)), header, data))
        return Respond(request, body, "application/octet-stream")

    return respond


def _text(text: str, kind: str) -> Callable[..., Any]:
    return Request.application(lambda request: Respond(request, text, kind))
