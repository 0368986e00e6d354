"""The runs whose predictions another one learns: knowledge distillation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from data import Tokenizer
from errors import UserError
from inference.opening import find_run, open_run
from model import GPT

SETTING = "trainer.teacher"


def find_teacher(path: str) -> Path:
    """The folder of the run, or of the sweep whose runs teach together. Raises UserError if it is
    neither."""
    return Path(path) if _swept(Path(path)) else find_run(Path(path), SETTING).path


def open_teacher(
    path: str | None, tokenizer: Tokenizer, context_length: int, device: torch.device
) -> Callable[[Tensor], Tensor] | None:
    """What gives the mean probabilities of the runs at a path, with their newest weights, for every
    token after each of some tokens; None without a path.

    Raises UserError, naming `trainer.teacher`, if a run cannot be opened, was trained with another
    tokenizer, or reads less than `context_length` tokens.
    """
    if path is None:
        return None
    runs = _swept(Path(path)) or [Path(path)]
    models = [_open_model(run, tokenizer, context_length, device) for run in runs]

    @torch.no_grad()
    def predict(tokens: Int[Tensor, "batch query"]) -> Float[Tensor, "batch query vocab"]:
        return torch.stack([model(tokens).softmax(dim=-1) for model in models]).mean(dim=0)

    return predict


def _swept(folder: Path) -> list[Path]:
    """The runs of a sweep; none if the folder is a run, or anything else."""
    if (folder / "config.yaml").exists():
        return []
    return [file.parent for file in sorted(folder.glob("*/config.yaml"))]


def _open_model(run: Path, tokenizer: Tokenizer, context_length: int, device: torch.device) -> GPT:
    opened = open_run(run, "last", device, SETTING)
    if opened.tokenizer.digest != tokenizer.digest:
        raise UserError(
            f"{SETTING}: {run} has another tokenizer, so its predictions are about other tokens; "
            "give a run with the same text and the same tokenizer.vocab_size"
        )
    if opened.config.model.context_length < context_length:
        raise UserError(
            f"{SETTING}: {run} reads {opened.config.model.context_length} tokens at once; set "
            f"model.context_length={opened.config.model.context_length}, or give another run"
        )
    return opened.model.requires_grad_(False)
