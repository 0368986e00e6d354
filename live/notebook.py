"""An open run in a notebook: the maps of a text, or the page in which the model runs."""

from __future__ import annotations

from typing import Any

import torch

from common.errors import UserError
from common.files import real_path
from data.cache import CacheError
from data.tales import Tales
from inference.corpus import corpus_of
from inference.opening import OpenRun
from live.models import mean_batches, values_of
from live.pack import pack
from live.page import about_run, check_page, describe, live_page, run_title
from live.texts import perfect_reader
from model import mean_outputs, record_attention, wiring_matrices
from tensorboard_attention import show
from tensorboard_attention.notebook import Viewer

WEIGHTS = "float16"


def look(run: OpenRun, text: str, live: bool = False, start: str = "document") -> Viewer:
    """Display the attention maps of a text in a notebook, or with `live` the page in which the
    model runs, and which begins with the text.

        look(open_run(), "Once there was a jolly deer named Ben.")

    start: that of `OpenRun.read`; in the page a text always begins as in training. There, a part
        that is off gives its mean over the run's text, or if that is not at hand, over a tale.

    Of a text that is longer than the context, the maps show the first tokens, which is printed.

    Raises ValueError for a text without tokens, and with `live` for another `start`, and UserError
    for a model or a tokenizer that a page cannot have.
    """
    if not live:
        return _maps(run, text, start)
    if start != "document":
        raise ValueError(f"start: {start!r}: a page begins a text as in training; leave it out")
    return _live_page(run, text)


def _maps(opened: OpenRun, text: str, start: str) -> Viewer:
    """The maps of the first tokens of `text` that fit the context."""
    model, tokenizer = opened.model, opened.tokenizer
    ids = opened.first_tokens(text, start)
    if not ids:
        raise ValueError("text: is empty; give the text to look at")
    tokens = torch.tensor(ids, device=next(model.parameters()).device)
    with torch.no_grad(), record_attention(model) as maps:
        model.hidden(tokens[None])
    spelled = [tokenizer.decode_bytes([token]) for token in tokens.tolist()]
    wires = wiring_matrices(model, tokens)
    return show(maps, spelled, title=title_of(opened), wiring=wires, names=opened.head_names())


def _live_page(opened: OpenRun, text: str) -> Viewer:
    model, tokenizer = opened.model, opened.tokenizer
    check_page(model, tokenizer, WEIGHTS)
    try:
        corpus, dataset = opened.text()
    except CacheError:
        raise
    except UserError:
        corpus, dataset = None, None
    batches, where = mean_batches(dataset, tokenizer, model.config.context_length)
    reader = perfect_reader(text, tokenizer) if isinstance(corpus, Tales) else []
    run: dict[str, Any] = {
        "name": title_of(opened),
        "about": about_run(model, None, [f"step {opened.step:,}"]),
        "means": where,
        "prompt": text,
        "examples": {},
        "reader": {text: reader} if reader else {},
    }
    names = {opened.step: known} if (known := opened.head_names()) else {}
    data = describe(model, [opened.step], WEIGHTS, tokenizer, run, names)
    packed = [pack(values_of(model, mean_outputs(model, batches)), WEIGHTS)]
    return Viewer(live_page(data, packed, run["name"], run["about"]))


def title_of(opened: OpenRun, name: str | None = None) -> str:
    """The title of a page: this name, or that of the run."""
    data, name = corpus_of(opened.run), name or opened.config.name
    return run_title(name, real_path(opened.run.path), data.name if data else None, opened.step)
