"""Reading a live page without a browser, from its description in live/pack.py alone."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np


def element(page: Path, name: str) -> str:
    return page.read_text("utf-8").split(f'id="{name}">')[1].split("</script>")[0]


def data_in(page: Path) -> dict[str, Any]:
    return json.loads(element(page, "model"))


def weights_in(page: Path, place: int) -> dict[str, np.ndarray]:
    """One checkpoint of a page with float32 or float16 weights, value by value."""
    about = data_in(page)
    data = zlib.decompress(base64.b64decode(element(page, f"weights-{place}")))
    width, letter = {"float32": (4, "<f"), "float16": (2, "<e")}[about["weights"]]
    count = len(data) // width
    values = [struct.unpack(letter, data[i::count])[0] for i in range(count)]
    found, at = {}, 0
    for name, shape in about["parameters"]:
        size = int(np.prod(shape))
        found[name] = np.array(values[at : at + size], np.float32).reshape(shape)
        at += size
    assert at == count
    return found
