"""Attention maps inline in a notebook: Jupyter, VS Code and Colab."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from tensorboard_attention.export import page_text
from tensorboard_attention.summary import Layers, Tokens, encode


class Viewer:
    """A page that a notebook displays in a frame as high as the page. It needs no server and no
    network; `page` is its HTML."""

    def __init__(self, page: str) -> None:
        self.page = page

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 700px; border: 0"
        page = html.escape(self.page)
        return f'<iframe title="Attention" data-fits="" style="{style}" srcdoc="{page}"></iframe>'


def show(
    maps: Layers,
    tokens: Tokens,
    scores: Mapping[str, Layers] | None = None,
    *,
    title: str = "Attention",
    **given: Any,
) -> Viewer:
    """Display the attention maps of a text as the Attention tab does, in a notebook.

        show(outputs.attentions, tokenizer.convert_ids_to_tokens(ids[0]))

    title: the heading. The other arguments, and what is raised, are those of `encode`.
    """
    return Viewer(page_text([("text", 0, encode(maps, tokens, scores, **given))], title))
