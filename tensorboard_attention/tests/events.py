"""Event files with any content, and what the tab answers on them."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from tensorboard_attention import encode
from tensorboard_attention.summary import attention_summary
from tensorboard_attention.tests.conftest import served

MAPS = [torch.eye(3)[None, None].repeat(1, 2, 1, 1)]
TOKENS = ["a", "b", "c"]
HEADER = json.loads(encode(MAPS, TOKENS)[0])
NAME = "events.out.tfevents.1"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="counts what Linux counts")


def changed(values: Any, *keys: str | int, to: Any) -> Any:
    """A copy of plain values, with one of them replaced."""
    found = json.loads(json.dumps(values))
    part = found
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = to
    return found


def write_json(name: str, folder: Path, found: object) -> Path:
    """Write a file of JSON into a folder, which may not exist yet; returns the folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(found))
    return folder


def write_losses(folder: Path, found: Any) -> Path:
    """The same of the file that `read_losses` reads, of which `found` may be no such content."""
    folder.mkdir(exist_ok=True)
    lines = [found]
    if isinstance(found, dict):
        steps = found["steps"].items()
        about = {name: found[name] for name in found if name != "steps"}
        lines = [about, *({"step": int(step), **values} for step, values in steps)]
    (folder / "losses.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def event(step: int = 0, header: Any = HEADER, tag: str = "probe") -> bytes:
    """An event with these maps; a header is written as JSON unless it is bytes."""
    logged = attention_summary(tag, MAPS, TOKENS)
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    logged.value[0].tensor.string_val[0] = text
    return Event(step=step, summary=logged).SerializeToString()


def framed(data: bytes) -> bytes:
    return head(len(data)) + data + b"...."  # the checksum of the data is not read


def head(length: int) -> bytes:
    size = struct.pack("<Q", length)
    return size + struct.pack("<I", masked_crc32c(size))


def write(folder: Path, *data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(b"".join(map(framed, data)))
    return folder / NAME


def look(logdir: Path) -> dict[str, Any]:
    """What /runs answers."""
    return json.loads(served(logdir)("/runs")[1])


LOOK = """if True:
    import json, sys
    from tensorboard.plugins.base_plugin import TBContext
    from werkzeug.test import Client
    from tensorboard_attention.plugin import AttentionPlugin

    def own(file, name):
        lines = open(f"/proc/self/{file}").read().splitlines() if sys.platform == "linux" else []
        return sum(int(line.split()[1]) for line in lines if line.startswith(name))

    plugin = AttentionPlugin(TBContext(logdir=sys.argv[1]))
    apps = plugin.get_plugin_apps()
    for _ in range(100):
        answer = Client(apps["/runs"]).get()
        if answer.json["complete"]:
            break
    before = own("io", "rchar")
    Client(apps["/runs"]).get()
    again = own("io", "rchar") - before
    sizes = [len(answer.data)]
    statuses = [answer.status_code]
    for run, tags in answer.json["steps"].items():
        for tag, steps in tags.items():
            for route in ("/scores", "/maps"):
                query = {"run": run, "tag": tag, "step": steps[-1]}
                got = Client(apps[route]).get(query_string=query)
                statuses.append(got.status_code)
                sizes.append(len(got.data))
    memory = own("status", "VmHWM") * 1024
    print(json.dumps([answer.json, statuses, max(sizes), memory, again]))
"""


def look_alone(logdir: Path) -> dict[str, Any]:
    """The same from a process of its own, which also asks for all maps and scores. Fails if it
    hangs, an answer is an error, or the limits of memory, answers and repeated reading are
    exceeded."""
    command = [sys.executable, "-c", LOOK, str(logdir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    answer, statuses, size, memory, again = json.loads(done.stdout)
    assert set(statuses) == {200}
    assert size < 64e6 and memory < 500e6
    assert again < 1e6, "what has not changed is read again"
    return answer
