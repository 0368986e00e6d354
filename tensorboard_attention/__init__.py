"""Attention maps in TensorBoard, for any model: `add_attention` logs them, the Attention tab shows
them, and `page` writes them to one HTML file. Depends on nothing else of this project.

TensorBoard imports this package when it starts; torch is imported only by what needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorboard_attention.export import page
    from tensorboard_attention.summary import add_attention, encode

__all__ = ["add_attention", "encode", "page"]

PLUGIN_NAME = "attention"
_HOMES = {"add_attention": "summary", "encode": "summary", "page": "export"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
