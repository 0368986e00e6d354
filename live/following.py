"""The live page of a run in training, which TensorBoard serves: it has no weights of its own, and
fetches those of each step that the run has written.

The run can be a stranger's. What it says of its model is checked as far as the page relies on it,
its texts stay texts, and the page runs no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from data.pieces import PATTERNS
from live.page import code, style, with_tables, worker_code
from live.tokenizer import javascript
from tensorboard_attention.export import LOADER, as_json, document
from tensorboard_attention.header import fits

MODULES = ("goingon", "following")  # beside those of every live page
STYLE = "following.css"
NEEDS = "This page needs JavaScript to run the model. Turn it on."

NUMBER = float | int
CONFIG = {str: NUMBER | str | bool | None}
TOKENIZER = {
    "name": str,
    "pattern": str,
    "tokens": [str],
    "names": {str: int},
    "start_ids": [int],
    "adds_start": bool,
    "eos_ids": [int],
    "document_end": str | None,
}
RUN = {
    **dict.fromkeys(("name", "about", "means", "prompt"), str),
    "examples": {str: str},
}
READER = {str: [(NUMBER, [(int, NUMBER)])]}  # a run of an earlier version has none


def page(data: Any, versions: Mapping[int, str]) -> tuple[str, str, str]:
    """The HTML of the page, its Content Security Policy, and the script of its worker, which it
    expects at follow/worker.

    data: what `describe` returned, from the run's folder.
    versions: by step, a text that changes with its weights; not empty.

    Raises ValueError unless `data` is what `describe` returns for float16.
    """
    try:
        _check(data)
        tables = with_tables(data)
    except (AttributeError, LookupError, TypeError):
        raise ValueError("it is not the description of a model") from None
    tables |= {"steps": sorted(versions), "versions": versions}
    script = code(MODULES, "startFollowing", '"follow/worker" + location.search')
    policy = (
        f"default-src 'none'; script-src {_source(LOADER)} {_source(script)}; worker-src 'self'; "
        "style-src 'unsafe-inline'; img-src blob: data:; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'"
    )
    run, elements = data["run"], {"model": as_json(tables)}
    parts = (NEEDS, policy, style(STYLE), elements, script)
    return document(run["name"], run["about"], *parts), policy, worker_code()


def _check(data: Any) -> None:
    """Raises some exception unless this is what `describe` returns."""
    tokenizer, run = data["tokenizer"], data["run"]
    reader = run.get("reader", {})
    sizes = [data["config"][name] for name in ("n_layers", "n_heads", "context_length")]
    if not (
        data["weights"] == "float16"
        and fits(data["config"], CONFIG)
        and fits(sizes, [int])
        and min(sizes) > 0
        and fits(data["parameters"], [(str, [int])])
        and all(fits(tokenizer[name], kind) for name, kind in TOKENIZER.items())
        and data["config"]["vocab_size"] == len(tokenizer["tokens"])
        and all(fits(run[name], kind) for name, kind in RUN.items())
        and fits(reader, READER)
        and all(
            0 <= id < len(tokenizer["tokens"])
            for places in reader.values()
            for _, chances in places
            for id, _ in chances
        )
        and data["names"] == {}  # they come with the weights
        # Matching an arbitrary pattern can take for ever.
        and tokenizer["pattern"] in {javascript(pattern) for pattern in PATTERNS}
    ):
        raise ValueError("it is not the description of a model")


def _source(script: str) -> str:
    """The source expression of an inline script in a Content Security Policy: its SHA-256."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
