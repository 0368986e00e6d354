"""The runs whose predictions another one learns: knowledge distillation."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from common.errors import UserError, printable
from data import Tokenizer
from inference.opening import find_run, open_run
from model import GPT
from training.distributed import Ranks
from training.trainer import Teacher

SETTING = "trainer.teacher"


def find_teacher(path: str) -> str:
    """The path of a run, also if it is `runs/latest`, or of a sweep. Raises UserError if it is
    neither."""
    if Path(path).name == "latest":
        return str(find_run(Path(path), SETTING).path)
    _runs(Path(path))
    return path


def open_teacher(
    path: str | None, tokenizer: Tokenizer, context_length: int, ranks: Ranks
) -> Teacher | None:
    """What gives the mean probabilities of the run at a path, or of the runs of a sweep, with their
    newest weights, for every token after each of some tokens; None without a path. Says which runs
    these are.

    Raises UserError, naming `trainer.teacher`, if a run cannot be opened, was trained with another
    tokenizer, or reads less than `context_length` tokens.
    """
    if path is None:
        return None
    models = [_open_model(run, tokenizer, context_length, ranks) for run in _runs(Path(path))]

    @torch.no_grad()
    def predict(tokens: Int[Tensor, "batch query"]) -> Float[Tensor, "batch query vocab"]:
        # One by one: with a large vocabulary, the probabilities of one model take much memory.
        mean = models[0](tokens).float().softmax(dim=-1)
        for count, model in enumerate(models[1:], 2):
            mean.lerp_(model(tokens).float().softmax(dim=-1), 1 / count)
        return mean

    return predict


def _runs(path: Path) -> list[Path]:
    """The folders of the runs of a sweep, or of a single run."""
    if (path / "multirun.yaml").exists():
        runs = [file.parent for file in sorted(path.glob("*/config.yaml"))]
    else:
        runs = [path] if (path / "config.yaml").exists() else []
    if not runs:
        raise UserError(
            f"{SETTING}: {path} is neither a run nor a sweep with runs; train the teacher first, "
            "give the folder where it is now, or null to train without one"
        )
    return runs


def _open_model(run: Path, tokenizer: Tokenizer, context_length: int, ranks: Ranks) -> GPT:
    opened = open_run(run, "last", ranks.device, SETTING)
    if opened.tokenizer.digest != tokenizer.digest:
        raise UserError(
            f"{SETTING}: {run} has another tokenizer, so its predictions are about other tokens; "
            "give a run with the same text and the same tokenizer"
        )
    if opened.config.model.context_length < context_length:
        raise UserError(
            f"{SETTING}: {run} reads {opened.config.model.context_length} tokens at once; set "
            f"model.context_length={opened.config.model.context_length}, or give another run"
        )
    ranks.print_main(printable(f"learning from {run}, step {opened.step}"))
    return opened.model.requires_grad_(False)
