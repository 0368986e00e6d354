"""The live page of a run in training, which TensorBoard serves: it has no weights of its own, and
fetches those of each step that the run has written.

The run can be a stranger's. Its texts stay texts, and the page runs no script but its own.
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

STYLE = "following.css"
NEEDS = "This page needs JavaScript to run the model. Turn it on."


def page(data: Any, versions: Mapping[int, str]) -> tuple[str, str, str]:
    """The HTML of the page, its Content Security Policy, and the script of its worker, which it
    expects at follow/worker.

    data: what `describe` returned, from the run's folder.
    versions: by step, ascending, a text that changes with its weights; not empty.

    Raises ValueError for other data, and for a tokenizer that splits a text by a pattern that is
    not one of ours.
    """
    try:
        name, about, pattern = (
            *map(data["run"].get, ("name", "about")),
            data["tokenizer"]["pattern"],
        )
        tables = {**with_tables(data), "steps": [*versions], "versions": versions}
    except (AttributeError, LookupError, TypeError):
        raise ValueError("it is not the description of a model") from None
    # Matching an arbitrary pattern can take for ever.
    if pattern not in {javascript(known) for known in PATTERNS}:
        raise ValueError("its tokenizer has an unknown pattern")
    script = code("following", "startFollowing", '"follow/worker" + location.search')
    policy = (
        f"default-src 'none'; script-src {_source(LOADER)} {_source(script)}; worker-src 'self'; "
        "style-src 'unsafe-inline'; img-src blob: data:; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'"
    )
    parts = (NEEDS, policy, style(STYLE), {"model": as_json(tables)}, script)
    return document(str(name), str(about), *parts), policy, worker_code()


def _source(script: str) -> str:
    """The source expression of an inline script in a Content Security Policy: its SHA-256."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
