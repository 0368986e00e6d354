"""Event files with any content, and what the tab answers on them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import torch
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from tensorboard_attention import encode
from tensorboard_attention.summary import attention_summary
from tensorboard_attention.tests.conftest import served

MAPS = [torch.eye(3)[None, None].repeat(1, 2, 1, 1)]
TOKENS = ["a", "b", "c"]
LOGGED = encode(MAPS, TOKENS)
HEADER = json.loads(LOGGED[0])
NAME = "events.out.tfevents.1"


def changed(values: Any, *keys: str | int, to: Any) -> Any:
    """A copy of plain values, with one of them replaced."""
    found = json.loads(json.dumps(values))
    part = found
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = to
    return found


def write_losses(folder: Path, found: Any) -> Path:
    """Write the file that `read_losses` reads into a folder, which may not exist yet; returns the
    folder. `found` may be no such content."""
    folder.mkdir(exist_ok=True)
    lines = [found]
    if isinstance(found, dict):
        steps = found["steps"].items()
        about = {name: found[name] for name in found if name != "steps"}
        lines = [about, *({"step": int(step), **values} for step, values in steps)]
    (folder / "losses.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def event(
    step: int = 0, header: Any = HEADER, tag: str = "probe", maps: bytes = LOGGED[1]
) -> bytes:
    """An event with these compressed maps; a header is written as JSON unless it is bytes."""
    logged = attention_summary(tag, MAPS, TOKENS)
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    logged.value[0].tensor.string_val[:] = [text, maps]
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
