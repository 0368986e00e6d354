"""What the page says of a model and its tokenizer, as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from data import Tokenizer
from live.tokenizer import tokenizer_data
from model import GPT


def describe(
    model: GPT,
    steps: Sequence[int],
    weights: str,
    tokenizer: Tokenizer,
    document_end: str | None,
    run: dict[str, Any],
) -> dict[str, Any]:
    """The JSON of a page.

    steps: those of the checkpoints in the page, ascending; weights: how they are packed.
    document_end: the text that ends a document, if there is one.
    run: what is told of the run.
    """
    return {
        "config": {**asdict(model.config), "vocab_size": model.vocab_size},
        "steps": list(steps),
        "weights": weights,
        "parameters": [[name, list(each.shape)] for name, each in model.named_parameters()],
        "tokenizer": tokenizer_data(tokenizer, document_end),
        "run": run,
    }
