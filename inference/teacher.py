"""The run whose predictions another one learns: knowledge distillation."""

from __future__ import annotations

from pathlib import Path

import torch

from data import Tokenizer
from errors import UserError
from inference.opening import find_run, open_run
from model import GPT

SETTING = "trainer.teacher"


def find_teacher(path: str) -> Path:
    """The folder of the run. Raises UserError if there is none."""
    return find_run(Path(path), SETTING).path


def open_teacher(
    path: str | None, tokenizer: Tokenizer, context_length: int, device: torch.device
) -> GPT | None:
    """The model of a run with its newest weights, which have no gradients; None without a path.

    Raises UserError, naming `trainer.teacher`, if it cannot be opened, was trained with another
    tokenizer, or reads less than `context_length` tokens.
    """
    if path is None:
        return None
    opened = open_run(path, "last", device, SETTING)
    if opened.tokenizer.digest != tokenizer.digest:
        raise UserError(
            f"{SETTING}: {path} has another tokenizer, so its predictions are about other tokens; "
            "give a run with the same text and the same tokenizer.vocab_size"
        )
    if opened.config.model.context_length < context_length:
        raise UserError(
            f"{SETTING}: {path} reads {opened.config.model.context_length} tokens at once; set "
            f"model.context_length={opened.config.model.context_length}, or give another run"
        )
    return opened.model.requires_grad_(False)
