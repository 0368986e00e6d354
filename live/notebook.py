"""An open run in a notebook: the maps of a text, or the page in which the model runs; and such a
page with any checkpoints of the run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from common.errors import UserError, print_note
from common.files import real_path
from data.cache import CacheError
from data.corpus import Corpus
from data.encoding import Dataset
from data.tales import Tales
from inference.opening import OpenRun
from live.models import mean_batches, values_of
from live.pack import check_size, pack
from live.page import Names, about_run, check_page, describe, live_page, run_title
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
    check_page(opened.model, opened.tokenizer, WEIGHTS)
    corpus, dataset = text_at_hand(opened)
    reader = perfect_reader(text, opened.tokenizer) if isinstance(corpus, Tales) else []
    run: dict[str, Any] = {
        "name": title_of(opened),
        "about": about_run(opened.model, None, [f"step {opened.step:,}"]),
        "prompt": text,
        "examples": {},
        "reader": {text: reader} if reader else {},
    }
    return Viewer(page_of(opened, [opened], WEIGHTS, dataset, run))


def page_of(
    opened: OpenRun,
    checkpoints: Iterable[OpenRun],
    weights: str,
    dataset: Dataset | None,
    run: dict[str, Any],
) -> str:
    """The page in which these checkpoints of a run can be chosen, ascending by step.

    dataset: over which the means of parts are; None: over a tale. run: that of `describe`, without
        what it says of these means.
    """
    model, tokenizer = opened.model, opened.tokenizer
    batches, where = mean_batches(dataset, tokenizer, model.config.context_length)
    packed: dict[int, str] = {}
    names: dict[int, Names] = {}
    for checkpoint in checkpoints:
        check_size(model.n_parameters, len(packed) + 1, weights)
        values = values_of(checkpoint.model, mean_outputs(checkpoint.model, batches))
        packed[checkpoint.step] = pack(values, weights)
        if known := checkpoint.head_names():
            names[checkpoint.step] = known
    data = describe(model, [*packed], weights, tokenizer, {**run, "means": where}, names)
    return live_page(data, [*packed.values()])


def text_at_hand(
    opened: OpenRun, cache_dir: str | Path = ".cache"
) -> tuple[Corpus, Dataset] | tuple[None, None]:
    """The text of the run, and its tokens; None, with a note on standard error, if it is not at
    hand, or no longer the one that the run was trained on."""
    if opened.corpus() is None:
        return None, None
    try:
        return opened.text(cache_dir)
    except CacheError:
        raise
    except UserError as error:
        print_note(f"note: the page has a tale in place of the run's text: {error}")
        return None, None


def title_of(opened: OpenRun, name: str | None = None) -> str:
    """The title of a page: this name, or that of the run."""
    data, name = opened.corpus(), name or opened.config.name
    return run_title(name, real_path(opened.run.path), data.name if data else None, opened.step)
