"""The settings of a run that starts from another: model and tokenizer are those of the other run,
all else is as composed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from common.errors import UserError
from common.settings import Values
from configs.cli import overridden
from data.tokenizer import TokenizerConfig
from inference.opening import read_config
from model import ModelConfig
from training.run import Run

# What may change: the weights depend on none, apart from learned positions, which can be cut.
FREE = ("dropout", "attention_dropout", "context_length")


@dataclass(frozen=True)
class BaseConfig:
    """The settings that a finetuning takes from the other run."""

    model: ModelConfig
    tokenizer: TokenizerConfig


def finetuned(composed: Values, base: Run) -> Values:
    """The composed settings with the model and the tokenizer of the run `base`, also where an
    experiment names others.

    Raises UserError if the command line sets what cannot change, if the context is longer than that
    of the model, or if settings of `base` are missing or damaged.
    """
    settings = read_config(base, BaseConfig)
    model, tokenizer = settings.model, settings.tokenizer
    given, free = overridden(), [f"model.{name}" for name in FREE]
    refused = [name for name in given if name.partition(".")[0] in ("model", "tokenizer")]
    if refused := sorted({*refused} - {*free}):
        raise UserError(
            f"{', '.join(refused)}: cannot be set with init_from, which brings the model and the "
            f"tokenizer; only {', '.join(free)} can; leave it out, or train without init_from"
        )
    changes = {name: composed["model"][name] for name in FREE if f"model.{name}" in given}
    length = changes.get("context_length", model.context_length)
    if isinstance(length, int) and length > model.context_length:
        reason = {
            "learned": "has learned no more positions",
            "rotary": "was never trained on longer distances",
        }[model.position]
        raise UserError(
            f"model.context_length: {length} is longer than that of init_from, which {reason}; "
            f"give at most {model.context_length}"
        )
    return composed | {"model": asdict(model) | changes, "tokenizer": asdict(tokenizer)}
