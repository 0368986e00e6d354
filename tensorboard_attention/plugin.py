"""TensorBoard's backend of the Attention tab. Routes:

    runs                  JSON: steps {run: {tag: [step, ...]}}; first, the run to open on: of the
                          newest day, the one with the largest step; versions {run: text}, where
                          a run's version changes when its old steps change; followed [run], those
                          that a page can follow; losses and evidence {run: text}, those that have
                          them, where the text changes with them; notes [text], what is not shown,
                          and why; complete, false if some of the log is still to be read
    losses?run=           the losses of tokens of a run, JSON in the format of losses.py
    evidence?run=         what its heads and neurons do, JSON in the format of evidence.py
    follow?run=           the page that follows a run (following.py)
    follow/worker?run=    the script of its worker
    follow/steps?run=     JSON: a text for each step that the page can show, which changes with it
    follow/names?run=     JSON: by step, what each head is called
    follow/weights?run=&step=
                          the weights of a step
    maps?run=&tag=&step=  header and maps in the format of summary.py
    twins?run=&tag=&step=&run2=&tag2=&step2=
                          JSON: [layer, head, layer, head of its twin, overlap] of each head of two
                          maps of the same text
    scores?run=&tag=      JSON: of all steps, texts (for each step the same number for the same
                          text) and kinds (for each step the number of its columns); columns: for
                          each, the names of its scores, where each was measured, and heads. Then
                          the float32 values (score, head) of one step after another

maps and scores respond with the length of the JSON as a uint32, the JSON, and the binary data. What
cannot be answered is not found, and the answer says why. Requests name runs, not files. --logdir
and the folders of --logdir_spec have to be local.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tensorboard.backend.http_util import Respond
from tensorboard.plugins.base_plugin import FrontendMetadata, TBContext, TBLoader, TBPlugin
from werkzeug import Request, Response

from tensorboard_attention import evidence, losses
from tensorboard_attention.apart import apart
from tensorboard_attention.beside import version
from tensorboard_attention.export import STATIC, STYLE, script, without_imports
from tensorboard_attention.following import (
    HEADERS,
    follow_page,
    is_followed,
    read_names,
    read_weights,
    steps,
)
from tensorboard_attention.index import Index
from tensorboard_attention.strict import from_json, to_json
from tensorboard_attention.summary import PLUGIN_NAME
from tensorboard_attention.twins import match_logged

ENTRY = "index.js"
# What is in the folders of runs beside their event files: where, and how to find it in one.
LOOKS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "followed": ("live", is_followed),
    "losses": (losses.NAME, partial(version, name=losses.NAME)),
    "evidence": (evidence.NAME, partial(version, name=evidence.NAME)),
}


class AttentionLoader(TBLoader):
    """TensorBoard finds this class through the entry point `tensorboard_plugins`: in an environment
    that has the tab alone and glassgpt, too, twice. It does not start with two plugins of one name,
    so only the first is loaded."""

    def load(self, context: TBContext) -> AttentionPlugin | None:
        is_loaded = PLUGIN_NAME in (context.plugin_name_to_instance or {})
        return None if is_loaded else AttentionPlugin(context)


class AttentionPlugin(TBPlugin):
    """The tab over the folders of `--logdir` or `--logdir_spec`."""

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
        routes = {
            "twins": self._twins,
            "losses": self._read(losses.read_losses),
            "evidence": self._read(evidence.read_evidence),
            "follow": self._follow,
            "follow/worker": self._worker,
            "follow/steps": self._read(steps),
            "follow/names": self._read(read_names),
            "follow/weights": self._weights,
            "maps": self._maps,
            "scores": self._scores,
        }
        apps |= {f"/{name}": _about_one_run(answer) for name, answer in routes.items()}
        return apps

    def _runs(self, request: Request) -> Response:
        complete = self._index.refresh()
        folders, notes = self._index.folders(), []
        found: dict[str, Any] = {}
        for name, (file, look) in LOOKS.items():
            seen, failed = apart(folders, lambda run: look(folders[run]))  # noqa: B023
            found[name] = {run: value for run, value in seen.items() if value}
            notes += [f"{run}/{file}: is not read: {reason}" for run, reason in failed.items()]
        found |= {
            "followed": [*found["followed"]],
            "steps": self._index.steps(),
            "first": self._index.first(),
            "versions": self._index.versions(),
            "notes": self._index.notes(notes),
            "complete": complete,
        }
        return _json(request, found)

    def _read(self, read: Callable[[Path], Any]) -> Callable[[Request], Response]:
        """Answers with what is read in the folder of a run."""
        return lambda request: _json(request, read(self._index.folder(request.args["run"])))

    def _twins(self, request: Request) -> Response:
        maps = []
        for which in ("", "2"):
            run, tag, step = (request.args[name + which] for name in ("run", "tag", "step"))
            header, packed = self._index.maps(run, tag, int(step))
            maps.append((from_json(header), packed))
        found = match_logged(*maps)
        rows = [[*twin.head, *twin.twin, round(twin.overlap, 4)] for twin in found]
        return _json(request, rows)

    def _follow(self, request: Request) -> Response:
        page, policy, _ = follow_page(self._index.folder(request.args["run"]))
        # Not by `Respond`, which would add TensorBoard's policy.
        headers = {**HEADERS, "Content-Security-Policy": policy}
        return Response(page, content_type="text/html; charset=utf-8", headers=headers)

    def _worker(self, request: Request) -> Response:
        *_, script = follow_page(self._index.folder(request.args["run"]))
        headers = [("Content-Security-Policy", "default-src 'none'")]
        return Respond(request, script, "text/javascript", headers=headers)

    def _weights(self, request: Request) -> Response:
        folder = self._index.folder(request.args["run"])
        data = read_weights(folder, int(request.args["step"]))
        return Respond(request, data, "application/octet-stream")

    def _maps(self, request: Request) -> Response:
        run, tag, step = (request.args[name] for name in ("run", "tag", "step"))
        return _framed(request, *self._index.maps(run, tag, int(step)))

    def _scores(self, request: Request) -> Response:
        header, values = self._index.scores(request.args["run"], request.args["tag"])
        return _framed(request, to_json(header).encode(), values)


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


def _about_one_run(answer: Callable[[Request], Response]) -> Callable[..., Any]:
    """The route that gives this answer, or, whatever is wrong with what it was asked for, status
    404 and the reason."""

    def of_known(request: Request) -> Response:
        try:
            return answer(request)
        except KeyError:
            raise ValueError("there is no such run, tag or step") from None

    @Request.application
    def respond(request: Request) -> Response:
        found, problems = apart([request], of_known)
        if request in found:
            return found[request]
        return Respond(request, problems[request], "text/plain", code=404)

    return respond


def _framed(request: Request, header: bytes, data: bytes) -> Response:
    header += b" " * (-len(header) % 4)  # aligns the floats; JSON may end in spaces
    body = b"".join((struct.pack("<I", len(header)), header, data))
    return Respond(request, body, "application/octet-stream")


def _json(request: Request, value: Any) -> Response:
    return Respond(request, to_json(value), "application/json")


def _text(text: str, kind: str) -> Callable[..., Any]:
    return Request.application(lambda request: Respond(request, text, kind))
