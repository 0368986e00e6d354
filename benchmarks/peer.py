"""The code of a nanoGPT checkout, which is given as a path and never part of this project."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def load_nanogpt(checkout: Path) -> Any:
    """The module that is its `model.py`."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", checkout / "model.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
