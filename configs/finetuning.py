"""The settings of a run that starts from another: model and tokenizer are those of the other run,
all else is as composed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from common.errors import UserError
from configs.schema import flat

KEPT = ("model", "tokenizer")
# What may change: the weights depend on none, apart from learned positions, which can be cut.
FREE = (
    "model.dropout",
    "model.attention_dropout",
    "model.context_length",
)


def finetuned_config(
    today: DictConfig, model: Any, tokenizer: Any, given: Iterable[str]
) -> DictConfig:
    """The composed settings `today` with the dataclasses `model` and `tokenizer` of another run.

    given: the settings and groups that the user has set, by name. Raises UserError if one of them
    cannot change, or if the context is longer than that of the model.
    """
    chosen = set(given)
    if refused := [name for name in sorted(chosen - {*FREE}) if name.partition(".")[0] in KEPT]:
        raise UserError(
            f"{', '.join(refused)}: cannot be set with init_from, which brings the model and the "
            f"tokenizer; only {', '.join(FREE)} can; leave it out, or train without init_from"
        )
    settings = today.copy()
    settings.model = OmegaConf.structured(model)
    settings.tokenizer = OmegaConf.structured(tokenizer)
    for name in chosen & {*FREE}:
        OmegaConf.update(settings, name, OmegaConf.select(today, name))
    if settings.model.context_length > model.context_length:
        reason = {
            "learned": "has learned no more positions",
            "rotary": "was never trained on longer distances",
        }[model.position]
        raise UserError(
            f"model.context_length: {settings.model.context_length} is longer than that of "
            f"init_from, which {reason}; give at most {model.context_length}"
        )
    return settings


def experiment_settings(name: str, folders: Iterable[Path]) -> set[str]:
    """The settings and groups that an experiment sets, with those that it builds on.

    folders: where configs are searched.
    """
    file = next(
        path for folder in folders if (path := folder / f"experiment/{name}.yaml").is_file()
    )
    contents: Any = OmegaConf.to_container(OmegaConf.load(file))
    names = set()
    for default in contents.pop("defaults", ()):
        if isinstance(default, dict):  # such as {"override /data": "text"}
            names |= {key.rpartition("/")[2] for key in default}
        elif default != "_self_":
            names |= experiment_settings(default.rpartition("/")[2], folders)
    return names | flat(contents).keys()
