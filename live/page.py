"""The live page as a single HTML file that loads nothing else.

The page script and that of the worker, in which the model runs, are joined from plain modules. The
worker is started from a Blob: the policy of the page allows no other source, and no request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import UserError, as_mistake, pluralize, printable
from live.pack import check_size
from live.tokenizer import character_classes, check_tokenizer, tokenizer_data
from tensorboard_attention import export
from tensorboard_attention.export import as_json, document, joined
from tensorboard_attention.naming import HeadName

if TYPE_CHECKING:  # TensorBoard, which serves pages too, does without torch
    from data.tokenizer import Tokenizer
    from model import GPT

Names = Sequence[Sequence[HeadName]]  # by layer and head

STATIC = Path(__file__).parent / "static"
STYLE = "live.css"
IMPORT = re.compile(r'^import [^;]*"\./(\w+)\.js";$', re.MULTILINE)
WRITERS = {"tales": "A storyteller", "shakespeare": "A playwright"}  # by what they were trained on
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; worker-src blob:; style-src 'unsafe-inline'; "
    "img-src blob: data:"
)
NEEDS = "This page needs JavaScript to run the model. Turn it on; the page loads nothing else."


def describe(
    model: GPT,
    steps: Sequence[int],
    weights: str,
    tokenizer: Tokenizer,
    run: dict[str, Any],
    names: Mapping[int, Names] | None = None,
) -> dict[str, Any]:
    """What a page needs to know of a model and its run, as plain values for JSON.

    steps: those of the checkpoints in the page, ascending; weights: how they are packed.
    run: its name, what `about_run` says of it, over what the means are that come with the weights,
        and what `page_texts` returns.
    names: by step, what heads are called, as far as it is known.
    """
    config = model.config
    shapes = {name: [*parameter.shape] for name, parameter in model.named_parameters()}
    shapes["means.heads"] = [config.n_layers * config.n_heads, config.d_head]
    shapes["means.mlps"] = [config.n_layers, config.d_model]
    return {
        "config": {**asdict(config), "vocab_size": model.vocab_size},
        "steps": list(steps),
        "weights": weights,
        "parameters": [*map(list, shapes.items())],
        "tokenizer": tokenizer_data(tokenizer),
        "run": run,
        "names": {str(step): named for step, named in (names or {}).items()},
    }


def about_run(model: GPT, data: str | None, more: Sequence[str] = ()) -> str:
    """A sentence on a model, and a line of figures. data: the name of what it was trained on."""
    count = model.n_parameters
    size = f"{count / 1e6:.1f} million" if count > 95_000 else f"{count:,}"
    config = model.config
    figures = [
        f"{pluralize(config.n_layers, 'layer')} of {pluralize(config.n_heads, 'head')}",
        f"{count:,} parameters",
    ]
    line = "; ".join([", ".join(figures), *([f"data: {data}"] if data else []), *more])
    return (
        f"{WRITERS.get(data or '', 'A writer')} of {size} parameters; it runs in this tab.\n{line}"
    )


def run_title(name: str | None, folder: Path, data: str | None, steps: int) -> str:
    """The name of a run; without one, that of its folder, or if this is a date, what it was trained
    on and for how long."""
    if name or data is None or not re.match(r"\d{4}-\d\d-\d\d_", folder.name):
        return printable(name or folder.name)
    return printable(f"{data}, {pluralize(steps, 'step')}")


def with_tables(data: Mapping[str, Any]) -> dict[str, Any]:
    """What `describe` returns, with the tables of the page that are the same for all models."""
    classes = character_classes(data["tokenizer"]["pattern"])
    tokenizer = {**data["tokenizer"], "classes": classes}
    return {**data, "tokenizer": tokenizer}


def check_page(model: GPT, tokenizer: Tokenizer, weights: str = "float16") -> None:
    """Raise UserError, naming a setting, unless a page with this model can be written."""
    with as_mistake("run: ", "; give a text to look at"):
        model.config.check_known("a live page")
    check_tokenizer(tokenizer)
    check_size(model.n_parameters, 1, weights)


def can_have_page(model: GPT, tokenizer: Tokenizer) -> bool:
    """Whether a page with this model can be written."""
    try:
        check_page(model, tokenizer)
    except UserError:
        return False
    return True


def live_page(data: Mapping[str, Any], weights: Sequence[str]) -> str:
    """The text of the file.

    data: what `describe` returns.
    weights: what `pack` returns for each of its steps.
    """
    elements = {"model": as_json(with_tables(data))}
    elements |= {f"weights-{place}": text for place, text in enumerate(weights)}
    title, about = data["run"]["name"], data["run"]["about"]
    return document(title, about, NEEDS, POLICY, style(), elements, code())


def code(module: str = "app", start: str = "start", worker: str | None = None) -> str:
    """The script of the page, which calls `start` of a module with the address of the worker's
    script: the JavaScript expression `worker`, or by default that of a Blob."""
    blob = f'new Blob([{json.dumps(worker_code())}], {{ type: "text/javascript" }})'
    script = joined(modules(module).values())
    return f"{script}\n{start}({worker or f'URL.createObjectURL({blob})'});"


def worker_code() -> str:
    """The script of the worker."""
    return joined(modules("worker").values())


@cache
def modules(name: str) -> dict[str, Path]:
    """By name, the files of a module and of all that it imports, of the page or of the tab, each
    after those that it imports."""
    own = STATIC / f"{name}.js"
    path = own if own.exists() else export.STATIC / own.name
    found: dict[str, Path] = {}
    for imported in IMPORT.findall(path.read_text("utf-8")):
        found |= modules(imported)
    return {**found, name: path}


def style(*more: str) -> str:
    """The style of the page, with `more` files."""
    files = (export.STATIC / export.STYLE, *(STATIC / name for name in (STYLE, *more)))
    return "\n".join(path.read_text("utf-8") for path in files)
