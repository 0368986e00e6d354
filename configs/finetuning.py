"""The settings of a run that starts from another: model and tokenizer are those of the other run,
all else is as composed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from common.errors import UserError
from common.settings import Values, flat
from configs.cli import overridden
from data.tokenizer import TokenizerConfig
from model import ModelConfig

# What may change: the weights depend on none, apart from learned positions, which can be cut.
FREE = ("dropout", "attention_dropout", "context_length")


def finetuned(today: Values, model: ModelConfig, tokenizer: TokenizerConfig) -> Values:
    """The composed settings `today` with the model and the tokenizer of another run.

    Raises UserError if the command line or the experiment sets what cannot change, or if the
    context is longer than that of the model.
    """
    given, free = given_settings(), [f"model.{name}" for name in FREE]
    refused = [name for name in given if name.partition(".")[0] in ("model", "tokenizer")]
    if refused := sorted({*refused} - {*free}):
        raise UserError(
            f"{', '.join(refused)}: cannot be set with init_from, which brings the model and the "
            f"tokenizer; only {', '.join(free)} can; leave it out, or train without init_from"
        )
    changes = {name: today["model"][name] for name in FREE if f"model.{name}" in given}
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
    return today | {"model": asdict(model) | changes, "tokenizer": asdict(tokenizer)}


def given_settings() -> set[str]:
    """The names of the settings, and of their groups, that the command line or the experiment
    sets."""
    runtime = HydraConfig.get().runtime
    folders = [Path(source.path) for source in runtime.config_sources if source.schema == "file"]
    experiment = runtime.choices.get("experiment")
    return {*overridden(), *(_set_by(experiment, folders) if experiment else ())}


def _set_by(experiment: str, folders: Iterable[Path]) -> set[str]:
    """The settings and groups that an experiment sets, with those that it builds on.

    folders: where configs are searched.
    """
    file = next(
        path for folder in folders if (path := folder / f"experiment/{experiment}.yaml").is_file()
    )
    contents: Any = OmegaConf.to_container(OmegaConf.load(file))
    names = set()
    for default in contents.pop("defaults", ()):
        if isinstance(default, dict):  # such as {"override /data": "text"}
            names |= {key.rpartition("/")[2] for key in default}
        elif default != "_self_":
            names |= _set_by(default.rpartition("/")[2], folders)
    return names | flat(contents).keys()
