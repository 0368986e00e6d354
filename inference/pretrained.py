"""The run that another one starts from: its model, its tokenizer and its newest weights.

Promises: nothing is written into it, and nothing else of it is read. An error names `init_from`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from common.files import read_json
from data.tokenizer import Tokenizer, TokenizerConfig
from inference.opening import read_section
from model import ModelConfig
from training.run import Run


@dataclass(frozen=True)
class Pretrained:
    """A run to start from, with its settings; `tokenizer` is the whole tokenizer."""

    run: Run
    model_config: ModelConfig
    tokenizer_config: TokenizerConfig
    tokenizer: Tokenizer

    @property
    def bytes_per_token(self) -> float | None:
        """Of its validation text; None if it has no result."""
        try:
            summary = read_json(self.run.summary_file)
            return summary["val_loss"] / math.log(2) / summary["val_bpb"]
        except (OSError, ValueError, KeyError, TypeError, ArithmeticError):
            return None

    def find_weights(self) -> Path:
        """The newest intact checkpoint. Raises UserError if there is none."""
        with _about_init_from():
            return self.run.checkpoints.find("last", "init_from")


def open_pretrained(path: str) -> Pretrained:
    """The run in the folder `path`. Raises UserError if it is none, or if its settings or its
    tokenizer are missing or damaged."""
    with _about_init_from():
        run = Run.open(path, "init_from")
        return Pretrained(
            run,
            read_section(run, "model", ModelConfig),
            read_section(run, "tokenizer", TokenizerConfig),
            Tokenizer.load(run.tokenizer_folder),
        )


@contextmanager
def _about_init_from() -> Iterator[None]:
    try:
        yield
    except UserError as error:
        message = str(error).removeprefix("init_from: ")
        raise UserError(f"init_from: {message}") from error
