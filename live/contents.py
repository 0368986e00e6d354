"""What the page says of a model and its tokenizer, as plain values for JSON."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from data import Tokenizer
from data.patterns import BPE, BYTE, GPT2
from errors import UserError
from model import GPT

PATTERNS = {BPE.tiktoken: "bpe", BYTE.tiktoken: "byte", GPT2.tiktoken: "gpt2"}


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

    Raises UserError for a tokenizer that the page does not have.
    """
    return {
        "config": {**asdict(model.config), "vocab_size": model.vocab_size},
        "steps": list(steps),
        "weights": weights,
        "parameters": [[name, list(each.shape)] for name, each in model.named_parameters()],
        "tokenizer": _tokenizer(tokenizer, document_end),
        "run": run,
    }


def check_tokenizer(tokenizer: Tokenizer) -> None:
    """Raise UserError, naming a setting, for a tokenizer that the page does not have."""
    if tokenizer._encoding._pat_str not in PATTERNS:
        raise UserError(
            f"run: its tokenizer, {tokenizer.name}, cuts text by a pattern that a live page does "
            "not have, which knows those of bpe, byte and gpt2; give a text to look at"
        )
    if tokenizer.normalizer:
        raise UserError(
            f"run: its tokenizer, {tokenizer.name}, changes text to Unicode's form "
            f"{tokenizer.normalizer}, which a live page does not do; give a text to look at"
        )


def _tokenizer(tokenizer: Tokenizer, document_end: str | None) -> dict[str, Any]:
    check_tokenizer(tokenizer)
    return {
        "name": tokenizer.name,
        "pattern": PATTERNS[tokenizer._encoding._pat_str],
        "tokens": [
            base64.b64encode(tokenizer.decode_bytes([token])).decode()
            for token in range(tokenizer.vocab_size)
        ],
        "start": tokenizer.start,
        "ends": list(tokenizer.ends),
        "document_end": document_end,
    }
